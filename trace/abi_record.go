// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"structs"
	"unsafe"
)

// The layouts of bpf/record.h. A test compares them with the BTF of the
// objects.

const (
	maxRanges    = 32
	maxResources = 16
	maxSteps     = 32
	numKinds     = 4
	numWindows   = 512
)

// enum event_type
const (
	eventRecord = iota + 1
	eventExport
	eventMove
	eventUnmap
	eventPin
	eventUnpin
	eventRevoke
	eventDetach
	eventDereg
	eventRelease
	eventModule
	eventCallers
	eventTracking
	eventTypes
)

// enum record_kind
const (
	kindRegDMABuf = iota + 1
	kindRegMR
	kindRereg
	kindAttach
	kindMap
	kindInventory
	kindReregDMABuf
	kindUmem
)

// enum func
const (
	funcHandler = iota + 1
	funcGet
	funcAttach
	funcPin
	funcMap
	funcVmap
	funcUmemGet
	funcUmemMap
	funcRestrack
	funcExporterAttach
	funcExporterPin
	funcExporterMap
	funcPhysVec
	funcP2PType
	funcP2PDistance
	funcDMAMapResource
	funcDMAMapSgtable
	funcUnmap
	funcDetach
	funcUmemUnmap
)

// enum have
const (
	haveArgs = 1 << iota
	haveBuf
	haveAttach
	haveMap
	haveMR
	havePin
	haveUnmapped
	haveDetached
	haveDriverOp
	haveNoDriverOp
	haveUntracked
	haveCached
	haveWalkCut
	haveIOMMU
	haveIOMMUType
	haveP2P
	haveAllowP2P
	haveVmap
	haveIOMem
	haveFD
	haveBadChain
	haveUmem
	haveUmemArgs
	haveOutside
	haveOtherDMA
)

// enum event_flags
const (
	eventInDereg = 1 << iota
	eventExiting
	eventInRereg
)

// enum config_flags
const (
	configPIDs = 1 << iota
	configCgroup
	configInodes
	configExports
	configRDMAOnly
	configStopped
)

// struct head
type wireHead struct {
	_    structs.HostLayout
	Type uint32
	CPU  uint32
	Time uint64
	ID   uint64
}

// struct event
type wireEvent struct {
	_      structs.HostLayout
	Head   wireHead
	Object uint64
	DMABuf uint64
	Inode  uint64
	TGID   uint32
	TID    uint32
	Ret    int32
	Flags  uint32
}

// struct export
type wireExport struct {
	_        structs.HostLayout
	Event    wireEvent
	Size     uint64
	Exporter [24]byte
	Owner    [24]byte
	Comm     [16]byte
}

const (
	maxCallers = 24
	callerName = 64
)

// struct callers
type wireCallers struct {
	_     structs.HostLayout
	Event wireEvent
	Name  [maxCallers][callerName]byte
}

// names are the functions, the innermost first.
func (c *wireCallers) names() []string {
	out := make([]string, 0, maxCallers)
	for i := range c.Name {
		if s := text(c.Name[i][:]); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// struct range
type wireRange struct {
	_     structs.HostLayout
	Start uint64
	Size  uint64
}

// struct resource
type wireResource struct {
	_    structs.HostLayout
	Phys uint64
	DMA  uint64
	Size uint64
}

// struct tally
type wireTally struct {
	_       structs.HostLayout
	Bytes   [numKinds]uint64
	Low     [numKinds]uint64
	High    [numKinds]uint64
	Entries uint32
	Pad     uint32
}

// struct step
type wireStep struct {
	_    structs.HostLayout
	Func uint8
	Pad  uint8
	Arg  uint16
	Ret  int32
	Time uint64
}

// struct devinfo
type wireDevice struct {
	_         structs.HostLayout
	Name      [32]byte
	Bus       [16]byte
	PCI       [16]byte
	Depth     uint32
	IOMMUType uint32
}

// struct record
type wireRecord struct {
	_            structs.HostLayout
	Head         wireHead
	Start        uint64
	Ret          int32
	Kind         uint32
	Have         uint32
	TGID         uint32
	TID          uint32
	FD           int32
	Comm         [16]byte
	Cgroup       uint64
	Offset       uint64
	Length       uint64
	IOVA         uint64
	Access       uint32
	MapType      uint32
	IBDev        [64]byte
	DMABuf       uint64
	Inode        uint64
	Size         uint64
	OpAttach     uint64
	OpPin        uint64
	OpMap        uint64
	Exporter     [24]byte
	Owner        [24]byte
	Attach       uint64
	ImporterOps  uint64
	ImporterCB   uint64
	ImporterPriv uint64
	Dev          wireDevice
	SGT          uint64
	MappedAt     uint64
	Nents        uint32
	OrigNents    uint32
	DMAFlags     uint32
	Distance     int32
	Displaced    uint64
	Opaque       uint64
	DMA          wireTally
	Pages        wireTally
	Res          wireTally
	Provider     [16]byte
	Reach        uint32
	ReachPad     uint32
	NOthers      uint32
	NBarred      uint32
	Barred       [32]byte
	MR           uint64
	MRIOVA       uint64
	MRLength     uint64
	MRN          uint32
	PDN          uint32
	LKey         uint32
	RKey         uint32
	NSteps       uint32
	NRanges      uint32
	NResources   uint32
	NAttach      uint32
	Steps        [maxSteps]wireStep
	Ranges       [maxRanges]wireRange
	Resources    [maxResources]wireResource
}

// struct window
type wireWindow struct {
	_     structs.HostLayout
	Start uint64
	End   uint64
	Kind  uint64
}

// struct config
type wireConfig struct {
	_         structs.HostLayout
	NextID    uint64
	Vmemmap   uint64
	Pages     uint64
	Wake      uint64
	Flags     uint32
	Walk      uint32
	PageShift uint32
	Pad       uint32
}

// struct holding
type wireHolding struct {
	_      structs.HostLayout
	What   uint32
	Slot   uint32
	Thread uint64
}

// struct owners
type wireOwners struct {
	_      structs.HostLayout
	Taken  [64]uint32
	Thread [1024]uint64
}

const (
	ownsScope = iota
	ownsDereg
	ownersTypes
)

// recordFixed is how much of a record is always sent.
const recordFixed = int(unsafe.Offsetof(wireRecord{}.Ranges))

// decode copies an event out of the ring. It returns one of *wireRecord,
// *wireExport, *wireCallers, *wireEvent.
func decode(data []byte) (any, error) {
	if len(data) < int(unsafe.Sizeof(wireHead{})) {
		return nil, fmt.Errorf("event of %d bytes", len(data))
	}
	var head wireHead
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&head)), unsafe.Sizeof(head)), data)
	switch head.Type {
	case eventRecord:
		r := new(wireRecord)
		if len(data) < recordFixed {
			return nil, fmt.Errorf("record of %d bytes, at least %d expected", len(data), recordFixed)
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r)), data)
		// The ring rounds sizes up: what is behind is not data.
		if want := r.sent(); len(data) < want {
			return nil, fmt.Errorf("record of %d bytes with %d ranges and %d resources, %d expected", len(data), r.NRanges, r.NResources, want)
		}
		return r, nil
	case eventExport, eventModule:
		x := new(wireExport)
		if len(data) < int(unsafe.Sizeof(*x)) {
			return nil, fmt.Errorf("export event of %d bytes", len(data))
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(x)), unsafe.Sizeof(*x)), data)
		return x, nil
	}
	if head.Type == eventCallers {
		c := new(wireCallers)
		if len(data) < int(unsafe.Sizeof(*c)) {
			return nil, fmt.Errorf("callers of %d bytes", len(data))
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(c)), unsafe.Sizeof(*c)), data)
		return c, nil
	}
	if head.Type == 0 || head.Type >= eventTracking {
		return nil, fmt.Errorf("event of unknown type %d", head.Type)
	}
	e := new(wireEvent)
	if len(data) < int(unsafe.Sizeof(*e)) {
		return nil, fmt.Errorf("event of type %d with %d bytes", head.Type, len(data))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(e)), unsafe.Sizeof(*e)), data)
	return e, nil
}

// sent is how many of its bytes are sent: none behind the last range, or resource.
func (r *wireRecord) sent() int {
	if n := len(r.resources()); n > 0 {
		return int(unsafe.Offsetof(r.Resources)) + n*int(unsafe.Sizeof(r.Resources[0]))
	}
	return recordFixed + len(r.ranges())*int(unsafe.Sizeof(r.Ranges[0]))
}

func (r *wireRecord) ranges() []wireRange { return r.Ranges[:min(int(r.NRanges), maxRanges)] }

func (r *wireRecord) resources() []wireResource {
	return r.Resources[:min(int(r.NResources), maxResources)]
}

func (r *wireRecord) steps() []wireStep { return r.Steps[:min(int(r.NSteps), maxSteps)] }

// wireRecordSize is that of a whole record, as an iterator writes it.
const wireRecordSize = int(unsafe.Sizeof(wireRecord{}))

// bytes is the memory of a configuration, for the map.
func (c *wireConfig) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(c)), unsafe.Sizeof(*c))
}

func windowBytes(w []wireWindow) []byte {
	if len(w) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), len(w)*int(unsafe.Sizeof(w[0])))
}

// text reads a C string of fixed size.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
