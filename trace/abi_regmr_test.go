// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"runtime"
	"structs"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// UVERBS_METHOD_REG_MR of include/uapi/rdma/ib_user_ioctl_cmds.h, which newer
// libraries than the testbed's call, from Linux 6.17 on.

const (
	uverbsObjectMR    = 7 // UVERBS_OBJECT_MR
	uverbsMethodRegMR = 5 // UVERBS_METHOD_REG_MR

	attrMandatory = 1 << 0 // UVERBS_ATTR_F_MANDATORY
)

// UVERBS_ATTR_REG_MR_…
const (
	regMRHandle = iota
	regMRPD
	regMRDMAHandle
	regMRIOVA
	regMRAddr
	regMRLength
	regMRAccess
	regMRFD
	regMRFDOffset
	regMRLKey
	regMRRKey
)

// struct ib_uverbs_attr
type uverbsAttr struct {
	_      structs.HostLayout
	ID     uint16
	Len    uint16
	Flags  uint16
	Data16 uint16
	Data   uint64
}

// struct ib_uverbs_ioctl_hdr
type uverbsCall struct {
	_         structs.HostLayout
	Length    uint16
	Object    uint16
	Method    uint16
	NumAttrs  uint16
	Reserved1 uint64
	Driver    uint32
	Reserved2 uint32
	Attrs     [10]uverbsAttr
}

// regMR is a call of REG_MR. Attributes whose field is nil are left out.
type regMR struct {
	addr     unsafe.Pointer
	fd       *int32
	fdOffset *uint64
	iova     uint64
	length   uint64
}

// regMR makes an MR with the older call's access flags.
func (d device) regMR(t *testing.T, node string, m regMR) (uverbs.MR, error) {
	t.Helper()
	driver, err := d.Identify()
	if err != nil {
		t.Fatal(err)
	}
	f := descriptorOf(node)
	if f == nil {
		t.Fatalf("%s is not open", node)
	}
	defer f.Close()
	// The kernel writes where numbers say.
	var pins runtime.Pinner
	defer pins.Unpin()
	keys := new(struct{ l, r uint32 })
	pins.Pin(keys)
	c := uverbsCall{Object: uverbsObjectMR, Method: uverbsMethodRegMR, Driver: driver}
	add := func(id, size uint16, data uint64) {
		c.Attrs[c.NumAttrs] = uverbsAttr{ID: id, Len: size, Flags: attrMandatory, Data: data}
		c.NumAttrs++
	}
	add(regMRHandle, 0, 0)
	add(regMRPD, 0, uint64(d.pd))
	add(regMRIOVA, 8, m.iova)
	add(regMRLength, 8, m.length)
	add(regMRAccess, 4, accessAll)
	if m.addr != nil {
		add(regMRAddr, 8, uint64(uintptr(m.addr)))
	}
	if m.fd != nil {
		add(regMRFD, 0, uint64(*m.fd))
	}
	if m.fdOffset != nil {
		add(regMRFDOffset, 8, *m.fdOffset)
	}
	add(regMRLKey, 4, uint64(uintptr(unsafe.Pointer(&keys.l))))
	add(regMRRKey, 4, uint64(uintptr(unsafe.Pointer(&keys.r))))
	c.Length = uint16(unsafe.Offsetof(c.Attrs) + uintptr(c.NumAttrs)*unsafe.Sizeof(c.Attrs[0]))
	if err := ioctl.Kernel.Ioctl(int(f.Fd()), uverbs.VerbsIoctl, unsafe.Pointer(&c)); err != nil {
		return uverbs.MR{}, err
	}
	return uverbs.MR{Handle: uint32(c.Attrs[0].Data), LKey: keys.l, RKey: keys.r}, nil
}

// pageOfRAM is host memory to register.
func pageOfRAM(t *testing.T) unsafe.Pointer {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return unsafe.Pointer(&mem[0])
}
