// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// verbs is what this package needs of libibverbs. There are two: the library
// (libibverbs_cgo.go) and, in tests, a script. A refusal is a unix.Errno.
//
// Posting and polling are not here: queues call the provider's functions
// through pointers in C (queue_cgo.go), which tests replace.
type verbs interface {
	// version names the library for people.
	version() string
	// open opens a device by its name; ErrNoDevice if it is not listed.
	open(name string) (verbsContext, error)
}

type verbsContext interface {
	cmdFD() int // of /dev/infiniband/uverbsN, borrowed
	queryDevice() (ibdev.DeviceAttr, error)
	queryPort(port int) (ibdev.PortAttr, error)
	// gids lists the entries in use, without network devices, and the ports
	// they belong to.
	gids() ([]ibdev.GID, []int, error)
	allocPD() (verbsPD, error)
	createCQ(attr CQAttr) (verbsCQ, error)
	// eventFD is the descriptor of asynchronous events, borrowed. It does not
	// block from then on.
	eventFD() (int, error)
	// event takes one event, shows it, and acknowledges it; unix.EAGAIN if there
	// is none. The objects it names are there while it is shown.
	event(show func(rawEvent)) error
	close() error
}

// rawEvent is struct ibv_async_event: what happened, and to the object with
// that identity, or to that port.
type rawEvent struct {
	typ    EventType
	object uintptr
	port   int
}

type verbsPD interface {
	handle() uint32
	regHost(addr, length, iova uint64, access Access) (verbsMR, error)
	// regDMABuf answers explain.NoSymbol if the library is too old to have
	// ibv_reg_dmabuf_mr.
	regDMABuf(offset, length, iova uint64, fd int, access Access) (verbsMR, error)
	createQP(attr *qpInit) (verbsQP, error)
	createSRQ(attr *SRQAttr) (verbsSRQ, error) // what was granted comes back in attr
	createAH(path *pathAttr) (verbsAH, error)
	replyAH(wc *WC, grh []byte, port int) (verbsAH, error)
	allocMW(typ MWType) (verbsMW, error)
	dealloc() error
}

type verbsMR interface {
	keys() (lkey, rkey, handle uint32)
	// rereg changes PD or access in place; nil keeps what there is. There is no
	// way to say that the memory is another.
	rereg(pd verbsPD, access *Access) error
	// moved tells the library that the kernel has moved the MR to pd.
	moved(pd verbsPD)
	dereg() error
}

type verbsCQ interface {
	identity() uintptr                // by which events name it
	queue() (*completionQueue, error) // made once per CQ
	// channelFD is the descriptor that a CQ with events reports on; it does not
	// block.
	channelFD() int
	arm(solicited bool) error
	event() error // takes one event; unix.EAGAIN if there is none
	ack(n int)    // that many events: destroy waits for it
	destroy() error
}

type verbsSRQ interface {
	identity() uintptr
	queue() (*recvQueue, error) // made once per SRQ
	resize(maxWR int) error
	setLimit(limit int) error
	query() (maxWR, limit int, _ error) // as they are now
	destroy() error
}

type verbsAH interface {
	identity() uintptr // its address, for work requests
	destroy() error
}

type verbsMW interface {
	rkey() uint32
	dealloc() error
}

type verbsQP interface {
	identity() uintptr
	num() uint32
	bindMW(mw verbsMW, mr verbsMR, b *mwBind) error // mr is nil to unbind
	queues() (*sendQueue, *recvQueue, error)        // made once per QP; no recvQueue with an SRQ
	modify(attr *qpModify) error
	state() (QPState, error)
	destroy() error
}

// qpInit are the parameters of ibv_create_qp. The granted depths and SGE
// counts, at least as large, come back in it.
type qpInit struct {
	typ                  QPType
	send, recv           verbsCQ
	srq                  verbsSRQ // nil without one
	sendDepth, recvDepth int
	sendSGE, recvSGE     int
	inline               int
	signalAll            bool
	atomicWrite, flush   bool
}

// mwBind is struct ibv_mw_bind, but for the MR.
type mwBind struct {
	id           uint64
	flags        SendFlags
	addr, length uint64
	access       Access
}

// pathAttr is struct ibv_ah_attr: where packets go.
type pathAttr struct {
	port        int
	lid         uint16
	gid         [16]byte
	gidIndex    int
	global      bool // GRH: RoCE, or beyond the subnet
	flowLabel   uint32
	hopLimit    uint8
	class       uint8
	sl          uint8
	srcPathBits uint8
	staticRate  uint8
}

// qpModify are the parameters of ibv_modify_qp; typ and state decide which are
// used.
type qpModify struct {
	typ   QPType
	state QPState

	// to INIT
	pkeyIndex int
	access    Access // RC
	qkey      uint32 // UD

	// to RTR
	path        pathAttr // its port to INIT too
	remoteQPN   uint32
	remotePSN   uint32
	mtu         int // bytes
	maxDestRead uint8
	minRNRTimer uint8

	// to RTS, unless resume is set: from SQD or SQE, the state being current
	psn        uint32
	timeout    uint8
	retryCount uint8
	rnrRetry   uint8
	maxRead    uint8
	resume     bool
	current    QPState

	// to SQD
	notify bool // EventSQDrained when it is
}

// String describes the path for messages.
func (p *pathAttr) String() string {
	if !p.global {
		return fmt.Sprintf("LID %d from port %d", p.lid, p.port)
	}
	return fmt.Sprintf("GID %v, our GID index %d, port %d", ibdev.GID{GID: p.gid}.Addr(), p.gidIndex, p.port)
}
