// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// ConnectAttr holds the parameters of a connection. A field that is 0 takes its default.
type ConnectAttr struct {
	PathAttr         // the path
	MTU       int    // bytes; default: the smaller MTU of the two ports, which is also the most
	Access    Access // the peer's rights, where the MR allows it too; default: READ, WRITE, atomics, and FLUSH with QPAttr.Flush
	PKeyIndex int    // place in the port's P_Key table; [Context.PKeyIndex] finds a partition's
	// MinRNRTimer is how long the peer's NIC waits at least before it repeats a message for which this
	// side had no receive: a number of enum ib_rnr_timeout in the kernel's include/rdma/ib_verbs.h,
	// 31 at most. Default: 12, which is 0.64 ms.
	MinRNRTimer uint8
	// Timeout is how long the NIC waits for an acknowledgement: 4.096 us * 2^Timeout, 31 at most.
	// Default: 14, which is 67 ms. Zero: without end.
	Timeout uint8
	// RetryCount is how often the NIC repeats a packet that the peer's NIC does not acknowledge: 7 at
	// most, default 6. rxe repeats without end at 7. Zero: never.
	RetryCount uint8
	// RNRRetry is how often the NIC repeats a message for which the peer has no receive: 7, the
	// default, is without end. Zero: never.
	RNRRetry uint8
	// MaxRead is how many READs, atomics and FLUSHes each side may have in flight. Default: the
	// device's limit, 16 at most. Zero: none.
	MaxRead uint8
	// PeerReads is how many of these the peer answers at once. Connect lets this side have no more in
	// flight, because the peer's NIC would end the connection. Default: MaxRead. Zero: none.
	PeerReads uint8
}

// Zero is a 0 in a field of ConnectAttr where 0 would take the default.
const Zero = 0xff

// Reads returns MaxRead with the device's default filled in, and 0 for Zero. The
// peer puts this number into its PeerReads.
func (a *ConnectAttr) Reads(dev ibdev.DeviceAttr) uint8 {
	switch a.MaxRead {
	case 0:
		return uint8(min(max(dev.MaxReadAtomic, 0), max(dev.MaxInitReadAtom, 0), 16))
	case Zero:
		return 0
	}
	return a.MaxRead
}

func (a *ConnectAttr) setDefaults(dev ibdev.DeviceAttr, flush bool) {
	if a.Access == 0 {
		a.Access = AccessLocalWrite | AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic
		if flush {
			// Both, as the kernel's cm does for a device that has either
			// (cm_init_qp_init_attr in drivers/infiniband/core/cm.c).
			a.Access |= accessFlush
		}
	}
	setDefault(&a.HopLimit, 64)
	setDefault(&a.MinRNRTimer, 12)
	setDefault(&a.Timeout, 14)
	setDefault(&a.RetryCount, 6)
	setDefault(&a.RNRRetry, 7)
	a.MaxRead = a.Reads(dev)
	setDefault(&a.PeerReads, a.MaxRead)
	for _, v := range []*uint8{&a.MinRNRTimer, &a.Timeout, &a.RetryCount, &a.RNRRetry, &a.PeerReads} {
		if *v == Zero {
			*v = 0
		}
	}
}

func setDefault(v *uint8, d uint8) {
	if *v == 0 {
		*v = d
	}
}

// choosePort settles port, GID and the local Endpoint.
func (q *QP) choosePort() error {
	c := q.pd.ctx
	var err error
	if q.attr.Port == 0 {
		q.attr.Port, q.port, err = c.activePort()
	} else {
		q.port, err = c.queryPort(q.attr.Port)
	}
	if err != nil {
		return err
	}
	q.local = Endpoint{LID: q.port.LID, Port: q.attr.Port, MTU: q.port.MTU}
	entry := q.attr.GID
	if entry == nil {
		table, err := c.gidTable(q.attr.Port)
		if err != nil {
			return failed("read the GID table", c.name, err)
		}
		chosen, _, err := gid.Choose(table, q.port.LinkLayer)
		if err != nil {
			e := failed("choose a GID", c.name, err)
			e.Detail = fmt.Sprintf("port %d has %d GIDs", q.attr.Port, len(table))
			e.Remedy = "give the port's network device an IP address"
			return e
		}
		entry = &chosen
	}
	if entry.Index < 0 || entry.Index > math.MaxUint8 {
		e := failed("choose a GID", c.name, unix.EINVAL)
		e.Detail = fmt.Sprintf("index %d of port %d's GID table", entry.Index, q.attr.Port)
		e.Remedy = "queue pairs reach the first 256 entries"
		return e
	}
	q.local.GID, q.local.GIDIndex = entry.GID, entry.Index
	return nil
}

// activePort is the device's first active port.
func (c *Context) activePort() (int, ibdev.PortAttr, error) {
	var none error
	for port := 1; port <= max(len(c.info.Ports), 1); port++ {
		a, err := c.queryPort(port)
		if err != nil {
			return 0, a, err
		}
		if a.State == ibdev.PortActive {
			return port, a, nil
		}
		e := failed("choose a port", c.name, unix.ENETDOWN)
		e.Detail = fmt.Sprintf("port %d is %v", port, a.State)
		e.Remedy = "bring the port's network device up"
		none = errors.Join(none, e)
	}
	return 0, ibdev.PortAttr{}, none
}

// Init takes the queue pair from any state through RESET to INIT, in which it
// takes receives but no messages yet: a receive that is posted now is there before the
// peer's first message, and Connect keeps it.
func (q *QP) Init(opt ConnectAttr) error {
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	m, err := q.connection(Endpoint{}, opt)
	if err != nil {
		return err
	}
	return q.through(m, StateReset, StateInit)
}

// Connect takes the queue pair to RTS, towards remote. Both sides connect, each
// with the other's Endpoint. A queue pair in INIT keeps its receives; one in any
// other state, be it the error state, is reset first.
func (q *QP) Connect(remote Endpoint, opt ConnectAttr) error {
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	if q.attr.Type != RC {
		e := failed("ibv_modify_qp", q.pd.ctx.name, unix.EINVAL)
		e.Detail = fmt.Sprintf("QP %d is %v", q.num, q.attr.Type)
		e.Remedy = "a UD queue pair is not connected: use Activate"
		return e
	}
	m, err := q.connection(remote, opt)
	if err != nil {
		return err
	}
	return q.bringUp(m)
}

// bringUp takes the queue pair to RTS: from INIT, where it keeps its receives,
// and from any other state through RESET.
func (q *QP) bringUp(m *libibverbs.QPModify) error {
	state, err := q.v.State()
	if err != nil {
		return failed("ibv_query_qp", q.pd.ctx.name, err)
	}
	if QPState(state) != StateInit {
		if err := q.through(m, StateReset); err != nil {
			return err
		}
	}
	return q.through(m, StateInit, StateRTR, StateRTS)
}

// Activate takes a UD queue pair to RTS. One in INIT keeps its receives; one in
// any other state is reset first.
func (q *QP) Activate(pkeyIndex int) error {
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	if q.attr.Type != UD {
		e := failed("ibv_modify_qp", q.pd.ctx.name, unix.EINVAL)
		e.Detail = fmt.Sprintf("QP %d is %v", q.num, q.attr.Type)
		e.Remedy = "use Connect"
		return e
	}
	if err := q.checkPKey(pkeyIndex); err != nil {
		return err
	}
	m := &libibverbs.QPModify{Type: int(UD), PKeyIndex: pkeyIndex, QKey: q.attr.QKey, PSN: q.psn.Load()}
	m.Path.Port = q.local.Port
	return q.bringUp(m)
}

// checkPKey refuses an index that does not fit into the 16 bits of the C field.
func (q *QP) checkPKey(index int) error {
	if index >= 0 && index <= math.MaxUint16 {
		return nil
	}
	e := failed("ibv_modify_qp", q.pd.ctx.name, unix.EINVAL)
	e.Detail = fmt.Sprintf("P_Key index %d", index)
	e.Remedy = "0 is the default partition's"
	return e
}

// checkFlush refuses the right to flush for a peer that may have no READs in flight:
// the device answers a FLUSH with the same resources, and rxe faults without any
// (rxe_prepare_res in rxe_resp.c).
func (q *QP) checkFlush(a Access, reads uint8) error {
	if a&accessFlush == 0 || reads > 0 {
		return nil
	}
	e := failed("ibv_modify_qp", q.pd.ctx.name, unix.EINVAL)
	e.Detail = fmt.Sprintf("QP %d with %v, and no READs in flight", q.num, a&accessFlush)
	e.Remedy = "a FLUSH counts as one: allow 1 or more, or leave " + (a & accessFlush).String() + " out of Access"
	return e
}

// connection is what Connect's transitions need.
func (q *QP) connection(remote Endpoint, opt ConnectAttr) (*libibverbs.QPModify, error) {
	c := q.pd.ctx
	if err := q.checkPKey(opt.PKeyIndex); err != nil {
		return nil, err
	}
	dev, err := c.v.QueryDevice()
	if err != nil {
		return nil, failed("ibv_query_device", c.name, err)
	}
	opt.setDefaults(dev, q.attr.Flush)
	if err := q.checkFlush(opt.Access, opt.MaxRead); err != nil {
		return nil, err
	}
	mtu := q.local.MTU
	if remote.MTU > 0 {
		mtu = min(mtu, remote.MTU)
	}
	if opt.MTU > 0 && (mtu == 0 || opt.MTU < mtu) {
		mtu = opt.MTU
	}
	if ibdev.MTUEnum(mtu) < ibdev.MTUMin {
		e := failed("ibv_modify_qp", c.name, unix.EINVAL)
		e.Detail = fmt.Sprintf("MTU %d", mtu)
		e.Remedy = "256 bytes is the smallest"
		return nil, e
	}
	return &libibverbs.QPModify{
		Type: int(q.attr.Type), PKeyIndex: opt.PKeyIndex, Access: uint32(opt.Access), QKey: q.attr.QKey,
		Path: q.pathTo(remote, opt.PathAttr), RemoteQPN: remote.QPN, RemotePSN: remote.PSN, MTU: mtu,
		MaxDestRead: opt.MaxRead, MinRNRTimer: opt.MinRNRTimer,
		PSN: q.psn.Load(), Timeout: opt.Timeout, RetryCount: opt.RetryCount, RNRRetry: opt.RNRRetry,
		MaxRead: min(opt.MaxRead, opt.PeerReads),
	}, nil
}

// through takes the queue pair from state to state.
func (q *QP) through(m *libibverbs.QPModify, states ...QPState) error {
	for _, s := range states {
		m.State = int(s)
		if err := q.modify(m); err != nil {
			return explainConnect(err, m)
		}
	}
	return nil
}

// explainConnect adds the path's numbers to a refused transition.
func explainConnect(err error, m *libibverbs.QPModify) error {
	n, e := asFailed(err)
	if e == nil {
		return err
	}
	switch {
	case m.State == int(StateRTR) && m.Type == int(RC):
		e.Detail += fmt.Sprintf(": QP %d at %v, MTU %d", m.RemoteQPN, &m.Path, m.MTU)
		if n == unix.ENETUNREACH || n == unix.EHOSTUNREACH || n == unix.ETIMEDOUT || n == unix.EINVAL {
			e.Remedy = "check that the peer's address can be reached from this port's network device"
		}
	case m.State == int(StateInit):
		e.Detail += fmt.Sprintf(": port %d, P_Key index %d, access %v", m.Path.Port, m.PKeyIndex, Access(m.Access))
	}
	return err
}

// LoopbackPair makes two queue pairs in pd, both with cq, and connects them
// with each other. It ignores attr's CQs; depths of 0 mean 1. The caller closes both.
func LoopbackPair(pd *PD, cq *CQ, attr QPAttr) (a, b *QP, err error) {
	attr.SendCQ, attr.RecvCQ = cq, cq
	if a, err = pd.CreateQP(attr); err != nil {
		return nil, nil, err
	}
	if b, err = pd.CreateQP(attr); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	if err = a.Connect(b.Local(), ConnectAttr{}); err == nil {
		err = b.Connect(a.Local(), ConnectAttr{})
	}
	if err != nil {
		return nil, nil, errors.Join(err, a.Close(), b.Close())
	}
	return a, b, nil
}

// ManagedAttr holds a connection's attributes as a connection manager has negotiated them with the
// peer (rdma_init_qp_attr(3)). No field has a default. See [ConnectAttr] for the units.
type ManagedAttr struct {
	Port      int
	PKeyIndex int
	Access    Access // the peer's rights, where the MR allows it too; no FLUSH if MaxDestRead is 0

	Remote   Endpoint // only its QPN, PSN, GID and LID count; the LID is a router's if the peer is behind one
	GIDIndex int      // of this side, in the port's GID table
	// PathAttr has Global if there is a GRH, as always over RoCE.
	PathAttr
	MTU         int    // bytes
	PSN         uint32 // first packet sequence number that this side sends
	MinRNRTimer uint8
	MaxDestRead uint8 // READs, atomics and FLUSHes that the peer may have in flight
	MaxRead     uint8 // those that this side may have in flight
	Timeout     uint8
	RetryCount  uint8
	RNRRetry    uint8
}

// ConnectManaged is [QP.Connect] with the attributes of a connection manager. It does not use the queue
// pair's own port, GID and packet sequence number. The error is EINVAL for attributes that no
// connection manager gives.
func (q *QP) ConnectManaged(a ManagedAttr) error {
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	m, err := q.managed(&a)
	if err != nil {
		return err
	}
	return q.bringUp(m)
}

func (q *QP) managed(a *ManagedAttr) (*libibverbs.QPModify, error) {
	e := failed("ibv_modify_qp", q.pd.ctx.name, unix.EINVAL)
	switch {
	case q.attr.Type != RC:
		e.Detail = fmt.Sprintf("QP %d is %v", q.num, q.attr.Type)
		e.Remedy = "use an RC queue pair"
		return nil, e
	case a.Port < 1 || a.Port > 255 || a.GIDIndex < 0 || a.GIDIndex > 255 || ibdev.MTUEnum(a.MTU) < ibdev.MTUMin:
		e.Detail = fmt.Sprintf("port %d, GID index %d, MTU %d", a.Port, a.GIDIndex, a.MTU)
		e.Remedy = "take the attributes from the connection manager when it has settled them"
		return nil, e
	}
	if err := q.checkPKey(a.PKeyIndex); err != nil {
		return nil, err
	}
	if q.checkFlush(a.Access, a.MaxDestRead) != nil {
		a.Access &^= accessFlush // rdma_cm gives it to every peer
	}
	return &libibverbs.QPModify{
		Type: int(RC), PKeyIndex: a.PKeyIndex, Access: uint32(a.Access),
		Path: libibverbs.Path{
			Port: a.Port, LID: a.Remote.LID, GID: a.Remote.GID, GIDIndex: a.GIDIndex, Global: a.Global,
			HopLimit: a.HopLimit, Class: a.TrafficClass, FlowLabel: a.FlowLabel,
			SL: a.SL, SrcPathBits: a.SrcPathBits, StaticRate: a.StaticRate,
		},
		RemoteQPN: a.Remote.QPN, RemotePSN: a.Remote.PSN, MTU: a.MTU,
		MaxDestRead: a.MaxDestRead, MinRNRTimer: a.MinRNRTimer,
		PSN: a.PSN, Timeout: a.Timeout, RetryCount: a.RetryCount, RNRRetry: a.RNRRetry, MaxRead: a.MaxRead,
	}, nil
}
