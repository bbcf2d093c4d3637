// SPDX-License-Identifier: Apache-2.0

package ibvfd

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
	queryDevice() (DeviceAttr, error)
	queryPort(port int) (PortAttr, error)
	// gids lists the entries in use, without network devices, and the ports
	// they belong to.
	gids() ([]GID, []int, error)
	allocPD() (verbsPD, error)
	createCQ(depth int) (verbsCQ, error)
	close() error
}

type verbsPD interface {
	handle() uint32
	regHost(addr, length, iova uint64, access Access) (verbsMR, error)
	// regDMABuf answers errNoSymbol (support.go) if the library is too old to have
	// ibv_reg_dmabuf_mr.
	regDMABuf(offset, length, iova uint64, fd int, access Access) (verbsMR, error)
	createQP(attr *qpInit) (verbsQP, error)
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
	queue() (*completionQueue, error) // made once per CQ
	destroy() error
}

type verbsQP interface {
	num() uint32
	queues() (*sendQueue, *recvQueue, error) // made once per QP
	modify(attr *qpModify) error
	state() (QPState, error)
	destroy() error
}

// qpInit are the parameters of ibv_create_qp. The granted depths and SGE
// counts, at least as large, come back in it.
type qpInit struct {
	typ                  QPType
	send, recv           verbsCQ
	sendDepth, recvDepth int
	sendSGE, recvSGE     int
	inline               int
	signalAll            bool
}

// qpModify are the parameters of ibv_modify_qp; state decides which are used.
type qpModify struct {
	state QPState

	// to INIT
	port      int
	pkeyIndex int
	access    Access

	// to RTR
	remote      Endpoint
	gidIndex    int
	global      bool // GRH: RoCE, or beyond the subnet
	mtu         int  // bytes
	hopLimit    uint8
	class       uint8
	sl          uint8
	maxDestRead uint8
	minRNRTimer uint8

	// to RTS
	psn        uint32
	timeout    uint8
	retryCount uint8
	rnrRetry   uint8
	maxRead    uint8
}
