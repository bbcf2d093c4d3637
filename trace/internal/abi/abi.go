// SPDX-License-Identifier: Apache-2.0

package abi

import "structs"

// Bounds of the arrays in a record and in the configuration.
const (
	MaxRanges    = 32
	MaxResources = 16
	MaxSteps     = 32
	NumKinds     = 4
	NumWindows   = 512
)

// The events: enum event_type.
const (
	EventRecord = iota + 1
	EventExport
	EventMove
	EventUnmap
	EventPin
	EventUnpin
	EventRevoke
	EventDetach
	EventDereg
	EventRelease
	EventModule
	EventCallers
	EventTracking
	EventTypes
)

// The kinds of records: enum record_kind.
const (
	KindRegDMABuf = iota + 1
	KindRegMR
	KindRereg
	KindAttach
	KindMap
	KindInventory
	KindReregDMABuf
	KindUmem
)

// The functions of a Step: enum func.
const (
	FuncHandler = iota + 1
	FuncGet
	FuncAttach
	FuncPin
	FuncMap
	FuncVmap
	FuncUmemGet
	FuncUmemMap
	FuncRestrack
	FuncExporterAttach
	FuncExporterPin
	FuncExporterMap
	FuncPhysVec
	FuncP2PType
	FuncP2PDistance
	FuncDMAMapResource
	FuncDMAMapSgtable
	FuncUnmap
	FuncDetach
	FuncUmemUnmap
)

// The bits of Record.Have: enum have.
const (
	HaveArgs = 1 << iota
	HaveBuf
	HaveAttach
	HaveMap
	HaveMR
	HavePin
	HaveUnmapped
	HaveDetached
	HaveDriverOp
	HaveNoDriverOp
	HaveUntracked
	HaveCached
	HaveWalkCut
	HaveIOMMU
	HaveIOMMUType
	HaveP2P
	HaveAllowP2P
	HaveVmap
	HaveIOMem
	HaveFD
	HaveBadChain
	HaveUmem
	HaveUmemArgs
	HaveOutside
	HaveOtherDMA
)

// The bits of Event.Flags: enum event_flags.
const (
	EventInDereg = 1 << iota
	EventExiting
	EventInRereg
)

// The bits of Config.Flags: enum config_flags.
const (
	ConfigPIDs = 1 << iota
	ConfigCgroup
	ConfigInodes
	ConfigExports
	ConfigRDMAOnly
	ConfigStopped
)

// Head is struct head: how every event begins.
type Head struct {
	_    structs.HostLayout
	Type uint32
	CPU  uint32
	Time uint64
	ID   uint64
}

// Event is struct event: the events that need no more fields.
type Event struct {
	_      structs.HostLayout
	Head   Head
	Object uint64
	DMABuf uint64
	Inode  uint64
	TGID   uint32
	TID    uint32
	Ret    int32
	Flags  uint32
}

// Export is struct export: an exported dma-buf or, with EventModule, a module that was loaded.
type Export struct {
	_        structs.HostLayout
	Event    Event
	Size     uint64
	Exporter [24]byte
	Owner    [24]byte
	Comm     [16]byte
}

// Bounds of the arrays in Callers.
const (
	MaxCallers = 24
	CallerName = 64
)

// Callers is struct callers: the functions that led to an event, as the kernel names them.
type Callers struct {
	_     structs.HostLayout
	Event Event
	Name  [MaxCallers][CallerName]byte
}

// Range is struct range: DMA addresses of a mapping.
type Range struct {
	_     structs.HostLayout
	Start uint64
	Size  uint64
}

// Resource is struct resource: physical addresses that were mapped for a device.
type Resource struct {
	_    structs.HostLayout
	Phys uint64
	DMA  uint64
	Size uint64
}

// Tally is struct tally: the bytes of one view of a mapping, by kind of memory.
type Tally struct {
	_       structs.HostLayout
	Bytes   [NumKinds]uint64
	Low     [NumKinds]uint64
	High    [NumKinds]uint64
	Entries uint32
	Pad     uint32
}

// Step is struct step: a call that belongs to a record, and its result.
type Step struct {
	_    structs.HostLayout
	Func uint8
	Pad  uint8
	Arg  uint16
	Ret  int32
	Time uint64
}

// Device is struct devinfo: the device of an attachment.
type Device struct {
	_         structs.HostLayout
	Name      [32]byte
	Bus       [16]byte
	PCI       [16]byte
	Depth     uint32
	IOMMUType uint32
}

// Bits of Device.IOMMUType, which is iommu_domain.type of include/linux/iommu.h.
const (
	IOMMUPaging      = 1 << 0
	IOMMUPassThrough = 1 << 2
)

// Record is struct record: a registration, an attachment or a mapping.
type Record struct {
	_            structs.HostLayout
	Head         Head
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
	Dev          Device
	SGT          uint64
	MappedAt     uint64
	Nents        uint32
	OrigNents    uint32
	DMAFlags     uint32
	Distance     int32
	Displaced    uint64
	Opaque       uint64
	DMA          Tally
	Pages        Tally
	Res          Tally
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
	Steps        [MaxSteps]Step
	Ranges       [MaxRanges]Range
	Resources    [MaxResources]Resource
}

// Window is struct window: a window of the physical address space.
type Window struct {
	_     structs.HostLayout
	Start uint64
	End   uint64
	Kind  uint64
}

// Config is struct config: the configuration of the programs.
type Config struct {
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

// Holding is struct holding: a slot, and the thread that has it.
type Holding struct {
	_      structs.HostLayout
	What   uint32
	Slot   uint32
	Thread uint64
}

// Owners is struct owners of bpf/state.h: the threads that have slots.
type Owners struct {
	_      structs.HostLayout
	Taken  [64]uint32
	Thread [1024]uint64
}

// OWNS_SCOPE and so on, of bpf/state.h.
const (
	OwnsScope = iota
	OwnsDereg
	OwnersTypes
)

// AttachState is struct attach_state of bpf/state.h.
type AttachState struct{ ID, DMABuf, Inode uint64 }

// KEYS_ATTACHES and so on, and KEY_GROUPS, of bpf/state.h.
const (
	KeysAttaches = 0
	KeysBufs     = 1
	KeysPIDs     = 3
	KeyGroups    = 2048
)
