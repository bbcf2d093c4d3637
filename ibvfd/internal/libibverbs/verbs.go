// SPDX-License-Identifier: Apache-2.0

package libibverbs

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// Library is libibverbs, or a test's script in its place. A refusal is a unix.Errno.
//
// Posting and polling are not here: queues call the provider's functions
// through pointers in C (queue_cgo.go), which tests replace.
type Library interface {
	// Version names the library for people.
	Version() string
	// Open opens a device by its name; ErrNoDevice if it is not listed.
	Open(name string) (Context, error)
}

// Context is a struct ibv_context: an open device.
type Context interface {
	CmdFD() int // of /dev/infiniband/uverbsN, borrowed
	QueryDevice() (ibdev.DeviceAttr, error)
	QueryPort(port int) (ibdev.PortAttr, error)
	// GIDs lists the entries of the GID tables that are in use, and the port of each. The
	// entries do not name their network devices.
	GIDs() ([]ibdev.GID, []int, error)
	AllocPD() (PD, error)
	CreateCQ(depth, vector int, events bool) (CQ, error)
	// DataDirect returns the directory below /sys of the PCI function that mlx5's driver uses
	// for Data Direct on this device. It answers unix.ENODEV if there is none, and
	// explain.NoSymbol if the library has no such call.
	DataDirect() (string, error)
	// EventFD returns the descriptor of asynchronous events, which the context owns, and makes
	// it non-blocking.
	EventFD() (int, error)
	// Event takes one event, calls show with it, and acknowledges it; unix.EAGAIN if
	// there is none. The objects that the event names exist until show returns.
	Event(show func(Event)) error
	Close() error
}

// Event is struct ibv_async_event. It is about the object with that identity, or about the port if
// Object is 0.
type Event struct {
	Type   int // enum ibv_event_type
	Object uintptr
	Port   int
}

// PD is a struct ibv_pd.
type PD interface {
	Handle() uint32
	RegHost(addr, length, iova uint64, access uint32) (MR, error)
	// RegDMABuf answers explain.NoSymbol if the library is too old to have
	// ibv_reg_dmabuf_mr.
	RegDMABuf(offset, length, iova uint64, fd int, access uint32) (MR, error)
	// RegDataDirect is RegDMABuf for Data Direct, by the PCI function that the context's
	// DataDirect returns.
	RegDataDirect(offset, length, iova uint64, fd int, access uint32) (MR, error)
	// AllocBuf has the provider allocate host memory for MRs of this PD. It answers
	// explain.NoSymbol if the library has no ibv_alloc_buf.
	AllocBuf(size int) (Buf, error)
	// RegBuf registers a part of memory of AllocBuf. The IOVA is the address.
	RegBuf(b Buf, addr, length uint64, access uint32) (MR, error)
	CreateQP(attr *QPInit) (QP, error)
	CreateSRQ(init *SRQInit) (SRQ, error)
	CreateAH(path *Path) (AH, error)
	ReplyAH(wc *WC, grh []byte, port int) (AH, error)
	AllocMW(typ int) (MW, error) // enum ibv_mw_type
	Dealloc() error
}

// Buf is host memory that a provider allocated. The provider need not zero it.
type Buf interface {
	Bytes() []byte
	Free()
}

// MR is a struct ibv_mr.
type MR interface {
	Keys() (lkey, rkey, handle uint32)
	Call() string // the function that registered it: "ibv_reg_mr_ex"
	// Rereg changes PD or access, and keeps the one that is nil. It cannot change the memory.
	Rereg(pd PD, access *uint32) error
	// Moved notes in the library's struct that the kernel has put the MR into pd.
	Moved(pd PD)
	Dereg() error
}

// CQ is a struct ibv_cq.
type CQ interface {
	Identity() uintptr                // its address, as events have it
	Queue() (*CompletionQueue, error) // once for each CQ; the caller frees it
	// ChannelFD returns the descriptor of the completion channel of a CQ with events. The CQ owns
	// it. It does not block.
	ChannelFD() int
	Arm(solicited bool) error
	Event() error // takes one event; unix.EAGAIN if there is none
	Ack(n int)    // acknowledges n events, for which Destroy waits
	Destroy() error
}

// SRQ is a struct ibv_srq.
type SRQ interface {
	Identity() uintptr          // its address, as events have it
	Queue() (*RecvQueue, error) // once for each SRQ; the caller frees it
	Resize(maxWR int) error
	SetLimit(limit int) error
	Query() (maxWR, limit int, _ error)
	Destroy() error
}

// AH is a struct ibv_ah.
type AH interface {
	Identity() uintptr // its address, as work requests have it
	Destroy() error
}

// MW is a struct ibv_mw.
type MW interface {
	RKey() uint32
	Dealloc() error
}

// QP is a struct ibv_qp.
type QP interface {
	Identity() uintptr // its address, as events have it
	Num() uint32
	BindMW(mw MW, mr MR, b *Bind) error // a nil mr unbinds
	// Queues returns the queues of work requests, once for each QP; the caller frees them. The
	// RecvQueue is nil with an SRQ.
	Queues() (*SendQueue, *RecvQueue, error)
	Modify(attr *QPModify) error
	State() (int, error)
	Destroy() error
}

// QPInit holds the parameters of ibv_create_qp. CreateQP writes into it the depths and SGE counts that
// the provider granted, which are at least as large.
type QPInit struct {
	Type                 int
	Send, Recv           CQ
	SRQ                  SRQ // nil without one
	SendDepth, RecvDepth int
	SendSGE, RecvSGE     int
	Inline               int
	SignalAll            bool
	AtomicWrite, Flush   bool
}

// SRQInit holds the parameters of ibv_create_srq. CreateSRQ writes into it what the provider granted.
type SRQInit struct{ Depth, SGE int }

// Bind is struct ibv_mw_bind without the MR.
type Bind struct {
	ID           uint64
	Flags        uint32
	Addr, Length uint64
	Access       uint32
}

// Path is struct ibv_ah_attr: the path to a peer's port.
type Path struct {
	Port        int
	LID         uint16
	GID         [16]byte
	GIDIndex    int
	Global      bool // GRH: RoCE, or beyond the subnet
	FlowLabel   uint32
	HopLimit    uint8
	Class       uint8
	SL          uint8
	SrcPathBits uint8
	StaticRate  uint8
}

// QPModify holds the parameters of ibv_modify_qp. Type and State decide which of them Modify passes
// on.
type QPModify struct {
	Type  int
	State int

	// to INIT
	PKeyIndex int
	Access    uint32 // RC
	QKey      uint32 // UD

	// to RTR
	Path        Path // its port to INIT too
	RemoteQPN   uint32
	RemotePSN   uint32
	MTU         int // bytes
	MaxDestRead uint8
	MinRNRTimer uint8

	// to RTS; with Resume only Current, which is the present state: SQD or SQE
	PSN        uint32
	Timeout    uint8
	RetryCount uint8
	RNRRetry   uint8
	MaxRead    uint8
	Resume     bool
	Current    int

	// to SQD
	Notify bool // EventSQDrained when it is
}

// String describes the path for messages.
func (p *Path) String() string {
	if !p.Global {
		return fmt.Sprintf("LID %d from port %d", p.LID, p.Port)
	}
	return fmt.Sprintf("GID %v, our GID index %d, port %d", ibdev.GID{GID: p.GID}.Addr(), p.GIDIndex, p.Port)
}

// OfPort reports whether the element of an event of this enum ibv_event_type is a port's number, and
// no pointer.
func OfPort(event int) bool {
	switch event {
	case 8, // DEVICE_FATAL
		9, 10, 11, 12, 13, // PORT_ACTIVE, PORT_ERR, LID_CHANGE, PKEY_CHANGE, SM_CHANGE
		17, 18: // CLIENT_REREGISTER, GID_CHANGE
		return true
	}
	return false
}
