// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// QPType is a queue pair's transport. The numbers are those of enum
// ibv_qp_type.
type QPType int

// The transports.
const (
	RC QPType = 2 // reliable connection
)

// String returns "RC".
func (t QPType) String() string {
	if t == RC {
		return "RC"
	}
	return fmt.Sprintf("QPType(%d)", int(t))
}

// QPState is a queue pair's state. The numbers are those of enum ibv_qp_state.
type QPState int

// The states.
const (
	StateReset QPState = iota
	StateInit
	StateRTR // ready to receive
	StateRTS // ready to send
	StateSQD
	StateSQE
	StateErr
)

var qpStateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String returns the state's name: "RTS".
func (s QPState) String() string { return nameOf(qpStateNames[:], int(s), "QPState") }

// QPAttr is what kind of queue pair to make.
type QPAttr struct {
	Type             QPType
	SendCQ, RecvCQ   *CQ
	SendDepth        int // work requests that may be outstanding; 0 means 1
	RecvDepth        int
	SendSGE, RecvSGE int // SGEs in one work request; 0 means 1
	Inline           int // bytes that SendInline may carry
	SignalAll        bool
	Port             int  // 0: the first active one
	GID              *GID // of Port; nil lets ChooseGID choose
}

// Endpoint is what two peers exchange before they connect.
type Endpoint struct {
	QPN      uint32   `json:"qpn"`
	PSN      uint32   `json:"psn"` // first packet sequence number that this side sends
	LID      uint16   `json:"lid"` // InfiniBand only
	GID      [16]byte `json:"gid"`
	GIDIndex int      `json:"gid_index"` // in the side's own table
	Port     int      `json:"port"`
	MTU      int      `json:"mtu"` // bytes; the connection takes the smaller one
}

// QP is a queue pair.
//
// PostSend, PostRecv and the CQs' Poll may run at the same time; each of them
// serves one caller after the other.
type QP struct {
	life
	pd    *PD
	v     verbsQP
	attr  QPAttr // as granted
	local Endpoint
	port  PortAttr
	num   uint32

	send struct {
		sync.Mutex
		q *sendQueue // nil once the QP is closed
	}
	recv struct {
		sync.Mutex
		q *recvQueue
	}
}

// CreateQP makes a queue pair in the RESET state. Close it before its CQs and
// the PD.
func (pd *PD) CreateQP(attr QPAttr) (*QP, error) {
	if err := pd.enter(); err != nil {
		return nil, err
	}
	defer pd.leave()
	if err := attr.check(pd); err != nil {
		return nil, err
	}
	// Entering one twice, or two in another order than somebody else, could wait
	// for a Close in between, for ever.
	cqs := []*CQ{attr.SendCQ, attr.RecvCQ}
	slices.SortFunc(cqs, func(a, b *CQ) int { return cmp.Compare(a.serial, b.serial) })
	for _, cq := range slices.Compact(cqs) {
		if err := cq.enter(); err != nil {
			return nil, err
		}
		defer cq.leave()
	}
	q := &QP{pd: pd, attr: attr}
	if err := q.choosePort(); err != nil {
		return nil, err
	}
	init := &qpInit{
		typ: attr.Type, send: attr.SendCQ.v, recv: attr.RecvCQ.v,
		sendDepth: max(attr.SendDepth, 1), recvDepth: max(attr.RecvDepth, 1),
		sendSGE: max(attr.SendSGE, 1), recvSGE: max(attr.RecvSGE, 1),
		inline: attr.Inline, signalAll: attr.SignalAll,
	}
	v, err := pd.v.createQP(init)
	if err != nil {
		return nil, explainCreateQP(pd.ctx, init, err)
	}
	send, recv, err := v.queues()
	if err != nil {
		_ = v.destroy()
		return nil, failed("allocate the work request arrays", pd.ctx.name, err)
	}
	q.v, q.num, q.send.q, q.recv.q = v, v.num(), send, recv
	q.attr.SendDepth, q.attr.RecvDepth = init.sendDepth, init.recvDepth
	q.attr.SendSGE, q.attr.RecvSGE, q.attr.Inline = init.sendSGE, init.recvSGE, init.inline
	q.local.QPN, q.local.PSN = q.num, rand.Uint32()&(1<<24-1)
	pd.hold(kindQP)
	attr.SendCQ.hold(kindQP)
	attr.RecvCQ.hold(kindQP)
	return q, nil
}

func (a *QPAttr) check(pd *PD) error {
	e := failed("ibv_create_qp", pd.ctx.name, unix.EINVAL)
	switch {
	case a.Type != RC:
		e.Detail = fmt.Sprintf("transport %v", a.Type)
		e.Remedy = "use RC"
	case a.SendCQ == nil || a.RecvCQ == nil:
		e.Detail = "a completion queue is missing"
		e.Remedy = "set SendCQ and RecvCQ; they may be the same"
	case a.SendCQ.ctx != pd.ctx || a.RecvCQ.ctx != pd.ctx:
		e.Detail = "PD and completion queues are of different contexts"
		e.Remedy = "make all of them from one Context"
	case min(a.SendDepth, a.RecvDepth, a.SendSGE, a.RecvSGE, a.Inline) < 0 || max(a.SendDepth, a.RecvDepth) > 1<<24 || max(a.SendSGE, a.RecvSGE) > 1<<12:
		e.Detail = fmt.Sprintf("depth %d/%d, SGEs %d/%d, inline %d", a.SendDepth, a.RecvDepth, a.SendSGE, a.RecvSGE, a.Inline)
		e.Remedy = "QueryDevice says what the device allows"
	default:
		return nil
	}
	return e
}

// explainCreateQP compares what was asked for with the device's limits.
func explainCreateQP(c *Context, init *qpInit, err error) error {
	e := failed("ibv_create_qp", c.name, err)
	e.Detail = fmt.Sprintf("depth %d/%d, SGEs %d/%d, inline %d", init.sendDepth, init.recvDepth, init.sendSGE, init.recvSGE, init.inline)
	if a, qerr := c.v.queryDevice(); qerr == nil {
		switch {
		case max(init.sendDepth, init.recvDepth) > a.MaxQPWR:
			e.Remedy = fmt.Sprintf("the device allows a depth of at most %d", a.MaxQPWR)
		case max(init.sendSGE, init.recvSGE) > a.MaxSGE:
			e.Remedy = fmt.Sprintf("the device allows at most %d SGEs", a.MaxSGE)
		case init.inline > 0:
			e.Remedy = "try less inline data"
		}
	}
	return e
}

// Num is the queue pair's number.
func (q *QP) Num() uint32 { return q.num }

// Attr is the queue pair's attributes as granted: depths and SGE counts may be
// larger than asked for.
func (q *QP) Attr() QPAttr { return q.attr }

// Local is this side's Endpoint, for the peer's Connect.
func (q *QP) Local() Endpoint { return q.local }

// State asks the device for the queue pair's state.
func (q *QP) State() (QPState, error) {
	if err := q.enter(); err != nil {
		return 0, err
	}
	defer q.leave()
	s, err := q.v.state()
	if err != nil {
		return 0, failed("ibv_query_qp", q.pd.ctx.name, err)
	}
	return s, nil
}

// PostSend posts work requests in order and returns how many were taken. It
// crosses into C once and allocates nothing. If posted < len(wrs), err says
// why wrs[posted] was refused, and those before it are under way.
func (q *QP) PostSend(wrs []SendWR) (posted int, err error) {
	q.send.Lock()
	defer q.send.Unlock()
	if q.send.q == nil {
		return 0, os.ErrClosed
	}
	posted, bad, errno := q.send.q.post(wrs)
	if bad == postOK {
		return posted, nil
	}
	return posted, q.explainPost("ibv_post_send", posted, q.attr.SendDepth, q.attr.SendSGE, bad, errno)
}

// PostRecv posts receives under PostSend's rules. A queue pair takes them from
// INIT on.
func (q *QP) PostRecv(wrs []RecvWR) (posted int, err error) {
	q.recv.Lock()
	defer q.recv.Unlock()
	if q.recv.q == nil {
		return 0, os.ErrClosed
	}
	posted, bad, errno := q.recv.q.post(wrs)
	if bad == postOK {
		return posted, nil
	}
	return posted, q.explainPost("ibv_post_recv", posted, q.attr.RecvDepth, q.attr.RecvSGE, bad, errno)
}

// postRefusal is why a work request was not posted.
type postRefusal int

const (
	postOK       postRefusal = iota
	postTooMany              // SGEs than the queue was made for
	postOpcode               // unknown opcode
	postProvider             // the provider's errno
)

func (q *QP) explainPost(op string, posted, depth, sges int, bad postRefusal, errno unix.Errno) error {
	e := failed(op, q.pd.ctx.name, errno)
	e.Detail = fmt.Sprintf("QP %d, work request %d", q.num, posted)
	switch {
	case bad == postTooMany:
		e.Detail += " has too many SGEs"
		e.Remedy = fmt.Sprintf("the queue pair was made for %d", sges)
	case bad == postOpcode:
		e.Detail += " has an unknown opcode"
	case errno == unix.ENOMEM:
		e.Remedy = fmt.Sprintf("the queue holds %d; poll completions before posting more", depth)
	case errno == unix.EINVAL:
		e.Remedy = "check the queue pair's state, opcode, flags and SGEs"
	}
	return e
}

// Reset puts the queue pair back to RESET: outstanding work requests are
// dropped, with or without completions.
func (q *QP) Reset() error { return q.to(StateReset) }

// Err puts the queue pair into the error state: everything outstanding
// completes, flushed.
func (q *QP) Err() error { return q.to(StateErr) }

func (q *QP) to(s QPState) error {
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	return q.modify(&qpModify{state: s})
}

func (q *QP) modify(m *qpModify) error {
	if err := q.v.modify(m); err != nil {
		e := failed("ibv_modify_qp", q.pd.ctx.name, err)
		e.Detail = fmt.Sprintf("QP %d to %v", q.num, m.state)
		return e
	}
	return nil
}

// Close destroys the queue pair. Outstanding work requests get no completion;
// completions already in the CQ stay. Closing again does nothing.
func (q *QP) Close() error {
	return q.end(func() error {
		q.send.Lock()
		defer q.send.Unlock()
		q.recv.Lock()
		defer q.recv.Unlock()
		if err := q.v.destroy(); err != nil {
			return failed("ibv_destroy_qp", q.pd.ctx.name, err)
		}
		q.send.q.free()
		q.recv.q.free()
		q.send.q, q.recv.q = nil, nil
		q.pd.drop(kindQP)
		q.attr.SendCQ.drop(kindQP)
		q.attr.RecvCQ.drop(kindQP)
		return nil
	})
}
