// SPDX-License-Identifier: Apache-2.0

package lspci

import "encoding/binary"

// Registers of the configuration space, by the names of
// include/uapi/linux/pci_regs.h.
const (
	headerSize   = 0x40    // PCI_STD_HEADER_SIZEOF
	spaceSize    = 0x100   // PCI_CFG_SPACE_SIZE
	extendedSize = 4 << 10 // PCI_CFG_SPACE_EXP_SIZE

	regVendor     = 0x00   // PCI_VENDOR_ID
	regDevice     = 0x02   // PCI_DEVICE_ID
	regStatus     = 0x06   // PCI_STATUS
	statusCapList = 0x10   // PCI_STATUS_CAP_LIST
	regCapList    = 0x34   // PCI_CAPABILITY_LIST
	noAnswer      = 0xffff // of a function that is switched off

	capExpress      = 0x10 // PCI_CAP_ID_EXP
	expressFlags    = 0x02 // PCI_EXP_FLAGS, with the type from bit 4 on
	expressDevCap   = 0x04 // PCI_EXP_DEVCAP
	expressDevCtl   = 0x08 // PCI_EXP_DEVCTL, with the payload from bit 5 on and the request from 12 on
	devCtlRelaxed   = 0x0010
	expressDevCtl2  = 0x28 // PCI_EXP_DEVCTL2
	devCtl2Requests = 0x0040
	devCtl2Blocked  = 0x0080
	expressSize     = 0x3c // PCI_EXP_SLTCTL2 and what follows it are behind that, and not read

	extACS      = 0x0d // PCI_EXT_CAP_ID_ACS: the capabilities at 4, the control at 6
	extATS      = 0x0f // PCI_EXT_CAP_ID_ATS: the control at 6
	atsEnable   = 0x8000
	extREBAR    = 0x15 // PCI_EXT_CAP_ID_REBAR: for each BAR 8 bytes, from 4 on
	rebarSizes  = 4    // the bit of 1 MiB
	rebarCount  = 5    // of the first control register
	extVersion1 = 1 << 16
	extNext     = 20
)

// The places of the registers that package p2p reads. They are not the places in the
// function's own space. It matters only that package p2p finds the registers there.
const (
	expressAt = headerSize
	// lastAt has room for the head of a capability, and none for its registers.
	lastAt = extendedSize - 4
	// some is a length that includes the capability of PCI Express and no other one. A
	// length of 256 would mean that there are no others.
	some = expressAt + expressSize
)

// config is the configuration space as far as the text has it; nil if it has none
// of it. The file ends before the first register that is not known.
func (f *function) config() []byte {
	c := make([]byte, extendedSize)
	le := binary.LittleEndian
	if f.silent {
		le.PutUint16(c[regVendor:], noAnswer)
		le.PutUint16(c[regStatus:], noAnswer)
		return c[:headerSize]
	}
	if !f.registers && !f.brief {
		return nil
	}
	// Without -nn these stay 0; package p2p takes them from their own files.
	le.PutUint16(c[regVendor:], number[uint16](f.vendor, 16))
	le.PutUint16(c[regDevice:], number[uint16](f.device, 16))
	e := f.caps.express
	if f.registers && !f.hasCaps && !f.caps.begun() && !f.unknown {
		return c[:spaceSize] // a conventional function without capabilities
	}
	c[regStatus] = statusCapList
	c[regCapList] = expressAt
	if e == nil && f.conventional() {
		return c[:spaceSize] // with a capability that is none
	}
	if e == nil || !e.known || f.unknown || f.caps.broken {
		return c[:headerSize]
	}
	e.put(c[expressAt:])
	switch {
	case !e.read():
		return c[:expressAt+expressDevCap]
	case !f.whole() || f.caps.extended == 0:
		// lspci prints nothing of the extended space where the kernel does not reach it.
		return c[:some]
	}
	return f.extended(c)
}

// conventional reports a function whose list of capabilities is whole and has none
// of PCI Express. With -v a function without capabilities has no line of them.
func (f *function) conventional() bool {
	listed := f.caps.listed > 0 || !f.registers
	return listed && f.whole() && !f.caps.denied && !f.caps.broken && f.caps.extended == 0
}

func (e *express) put(c []byte) {
	le := binary.LittleEndian
	le.PutUint16(c, capExpress) // the only one
	le.PutUint16(c[expressFlags:], uint16(e.version)|uint16(e.kind)<<4)
	if !e.read() {
		return
	}
	le.PutUint16(c[expressDevCap:], code(e.payloadCap))
	control := code(e.payload)<<5 | code(e.request)<<12
	if e.relaxed {
		control |= devCtlRelaxed
	}
	le.PutUint16(c[expressDevCtl:], control)
	var control2 uint16
	if e.atomicRequests {
		control2 |= devCtl2Requests
	}
	if e.atomicsBlocked {
		control2 |= devCtl2Blocked
	}
	le.PutUint16(c[expressDevCtl2:], control2)
}

// extended adds the extended capabilities.
func (f *function) extended(c []byte) []byte {
	x := capabilityList{c: c, at: spaceSize, last: -1}
	var unread []uint32
	add := func(id uint32, there, read bool, size int, put func(c []byte)) {
		switch {
		case there && read:
			put(x.add(id, size))
		case there:
			unread = append(unread, id)
		}
	}
	le := binary.LittleEndian
	a, t, r := f.caps.acs, f.caps.ats, f.caps.rebar
	add(extACS, a != nil, a != nil && a.read(), 8, func(c []byte) {
		le.PutUint16(c[4:], a.can)
		le.PutUint16(c[6:], a.control)
	})
	add(extATS, t != nil, t != nil && t.read(), 8, func(c []byte) {
		if t.enabled {
			le.PutUint16(c[6:], atsEnable)
		}
	})
	add(extREBAR, r != nil, r != nil && r.read(), 4+8*standardBARs, func(c []byte) {
		for i, b := range r.bars {
			le.PutUint32(c[4+8*i:], uint32(b.sizes<<rebarSizes))
			c[8+8*i] = b.index
		}
		c[8] |= uint8(len(r.bars)) << rebarCount
	})
	switch len(unread) {
	case 0:
		if x.last < 0 { // the text has none of them: zeros alone would be a file that was cut
			le.PutUint32(c[spaceSize:], extVersion1|extFiller)
		}
		return c
	case 1:
		x.at = lastAt
		x.add(unread[0], 4)
		return c
	}
	return c[:some]
}

// capabilityList writes a list of extended capabilities.
type capabilityList struct {
	c        []byte
	at, last int
}

func (x *capabilityList) add(id uint32, size int) []byte {
	le := binary.LittleEndian
	if x.last < 0 {
		if x.at == lastAt { // the first is where the extended space begins
			le.PutUint32(x.c[spaceSize:], lastAt<<extNext|extVersion1|extFiller)
		}
	} else {
		le.PutUint32(x.c[x.last:], le.Uint32(x.c[x.last:])|uint32(x.at)<<extNext)
	}
	le.PutUint32(x.c[x.at:], id|extVersion1)
	part := x.c[x.at : x.at+size]
	x.last = x.at
	x.at += (size + 3) &^ 3
	return part
}

// extFiller is a capability that package p2p does not read: PCI_EXT_CAP_ID_VNDR.
const extFiller = 0x0b
