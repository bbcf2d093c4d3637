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

type Context interface {
	CmdFD() int // of /dev/infiniband/uverbsN, borrowed
	QueryDevice() (ibdev.DeviceAttr, error)
	QueryPort(port int) (ibdev.PortAttr, error)
	// GIDs lists the entries in use, without network devices, and the ports
	// they belong to.
	GIDs() ([]ibdev.GID, []int, error)
	AllocPD() (PD, error)
	CreateCQ(depth, vector int, events bool) (CQ, error)
	// DataDirect is the directory below /sys of the DMA function that mlx5's driver has
	// taken for the device; unix.ENODEV if it has none, explain.NoSymbol if the library
	// cannot say.
	DataDirect() (string, error)
	// EventFD is the descriptor of asynchronous events, borrowed. It does not
	// block from then on.
	EventFD() (int, error)
	// Event takes one event, calls show with it, and acknowledges it; unix.EAGAIN if
	// there is none. The objects that the event names exist until show returns.
	Event(show func(Event)) error
	Close() error
}

// Event is struct ibv_async_event: what happened, and to the object with
// that identity, or to that port.
type Event struct {
	Type   int
	Object uintptr
	Port   int
}

type PD interface {
	Handle() uint32
	RegHost(addr, length, iova uint64, access uint32) (MR, error)
	// RegDMABuf answers explain.NoSymbol if the library is too old to have
	// ibv_reg_dmabuf_mr.
	RegDMABuf(offset, length, iova uint64, fd int, access uint32) (MR, error)
	// RegDataDirect is RegDMABuf by the DMA function of the NIC's card, which the
	// context's DataDirect has named.
	RegDataDirect(offset, length, iova uint64, fd int, access uint32) (MR, error)
	// AllocBuf has the provider allocate host memory for MRs of this PD. It answers
	// explain.NoSymbol if the library has no ibv_alloc_buf.
	AllocBuf(size int) (Buf, error)
	// RegBuf registers a part of what AllocBuf allocated: its IOVA is its address.
	RegBuf(b Buf, addr, length uint64, access uint32) (MR, error)
	CreateQP(attr *QPInit) (QP, error)
	CreateSRQ(init *SRQInit) (SRQ, error)
	CreateAH(path *Path) (AH, error)
	ReplyAH(wc *WC, grh []byte, port int) (AH, error)
	AllocMW(typ int) (MW, error)
	Dealloc() error
}

// Buf is host memory that a provider allocated. It may hold any bytes at first.
type Buf interface {
	Bytes() []byte
	Free()
}

type MR interface {
	Keys() (lkey, rkey, handle uint32)
	Call() string // the function that registered it: "ibv_reg_mr_ex"
	// Rereg changes PD or access in place; nil keeps the present one. It cannot change
	// the memory.
	Rereg(pd PD, access *uint32) error
	// Moved tells the library that the kernel has moved the MR to pd.
	Moved(pd PD)
	Dereg() error
}

type CQ interface {
	Identity() uintptr                // by which events name it
	Queue() (*CompletionQueue, error) // made once per CQ
	// ChannelFD is the descriptor that a CQ with events reports on; it does not
	// block.
	ChannelFD() int
	Arm(solicited bool) error
	Event() error // takes one event; unix.EAGAIN if there is none
	Ack(n int)    // that many events: destroy waits for it
	Destroy() error
}

type SRQ interface {
	Identity() uintptr
	Queue() (*RecvQueue, error) // made once per SRQ
	Resize(maxWR int) error
	SetLimit(limit int) error
	Query() (maxWR, limit int, _ error) // as they are now
	Destroy() error
}

type AH interface {
	Identity() uintptr // its address, for work requests
	Destroy() error
}

type MW interface {
	RKey() uint32
	Dealloc() error
}

type QP interface {
	Identity() uintptr
	Num() uint32
	BindMW(mw MW, mr MR, b *Bind) error      // mr is nil to unbind
	Queues() (*SendQueue, *RecvQueue, error) // made once per QP; the RecvQueue is nil with an SRQ
	Modify(attr *QPModify) error
	State() (int, error)
	Destroy() error
}

// QPInit are the parameters of ibv_create_qp. The granted depths and SGE
// counts, at least as large, come back in it.
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

// SRQInit are the parameters of ibv_create_srq; the granted values come back in it.
type SRQInit struct{ Depth, SGE int }

// Bind is struct ibv_mw_bind, but for the MR.
type Bind struct {
	ID           uint64
	Flags        uint32
	Addr, Length uint64
	Access       uint32
}

// Path is struct ibv_ah_attr: where packets go.
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

// QPModify are the parameters of ibv_modify_qp; typ and state decide which are
// used.
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

	// to RTS, unless resume is set: from SQD or SQE, the state being current
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

// OfPort reports whether an event's element is a port's number. The numbers are those
// of enum ibv_event_type.
func OfPort(event int) bool {
	switch event {
	case 8, // DEVICE_FATAL
		9, 10, 11, 12, 13, // PORT_ACTIVE, PORT_ERR, LID_CHANGE, PKEY_CHANGE, SM_CHANGE
		17, 18: // CLIENT_REREGISTER, GID_CHANGE
		return true
	}
	return false
}
