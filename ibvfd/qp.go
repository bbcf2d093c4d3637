// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// QPAttr says what kind of queue pair to make.
type QPAttr struct {
	Type             QPType
	SendCQ, RecvCQ   *CQ
	SRQ              *SRQ // where the receives come from; nil: PostRecv
	SendDepth        int  // work requests that may be outstanding; 0 means 1
	RecvDepth        int
	SendSGE, RecvSGE int  // SGEs in one work request; 0 means 1
	Inline           int  // bytes that SendInline may carry
	SignalAll        bool // every work request makes a completion
	// SignalEvery is n if every n-th work request is to make a completion, counted
	// from the last one that made one, by SignalEvery or by SendSignaled. With 0,
	// only SendSignaled asks for completions. A completion means that all work
	// requests before it have completed too: their memory may be reused, and their
	// places in the queue are free. Only completions free places, so a queue that
	// makes none fills up for good. SignalEvery is at most SendDepth.
	SignalEvery int
	// AtomicWrite lets an RC queue pair post OpAtomicWrite. It takes Linux 6.2,
	// libibverbs 44 and a device that has it; CreateQP answers
	// errors.ErrUnsupported elsewhere.
	AtomicWrite bool
	// Flush lets an RC queue pair post OpFlush, and has Connect allow it to the peer
	// too. It takes Linux 6.2, libibverbs 45 and a device that has it; CreateQP
	// answers errors.ErrUnsupported elsewhere. A queue pair that is only flushed to
	// needs none of this, but the flags in ConnectAttr.Access.
	Flush bool
	Port  int        // 0: the first active one
	GID   *ibdev.GID // of Port; nil lets ChooseGID choose
	// QKey is what a UD queue pair's senders must know. Its highest bit is for
	// privileged ones.
	QKey uint32
}

// QP is a queue pair. [QP.Connect] connects an RC queue pair with one peer. [QP.Activate] brings up a
// UD queue pair, which then sends to any peer by address handles ([QP.CreateAH]).
//
// PostSend, PostRecv and the CQs' Poll may run at the same time. Each of them serves one caller
// after the other.
type QP struct {
	life
	pd    *PD
	v     libibverbs.QP
	attr  QPAttr   // as granted
	local Endpoint // its PSN is psn
	psn   atomic.Uint32
	port  ibdev.PortAttr
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

// CreateQP makes a queue pair in the RESET state. If the provider refuses it, the error compares
// attr with the device's limits. The caller closes the queue pair before its CQs, its
// SRQ and the PD.
func (pd *PD) CreateQP(attr QPAttr) (*QP, error) {
	if err := pd.enter(); err != nil {
		return nil, err
	}
	defer pd.leave()
	if err := attr.check(pd); err != nil {
		return nil, err
	}
	// Each CQ is entered once, and in the same order by every goroutine: otherwise two
	// goroutines and a Close between them could wait for each other for ever.
	cqs := []*CQ{attr.SendCQ, attr.RecvCQ}
	slices.SortFunc(cqs, func(a, b *CQ) int { return cmp.Compare(a.serial, b.serial) })
	for _, cq := range slices.Compact(cqs) {
		if err := cq.enter(); err != nil {
			return nil, err
		}
		defer cq.leave()
	}
	if attr.SRQ != nil {
		if err := attr.SRQ.enter(); err != nil {
			return nil, err
		}
		defer attr.SRQ.leave()
	}
	q := &QP{pd: pd, attr: attr}
	if err := q.choosePort(); err != nil {
		return nil, err
	}
	init := &libibverbs.QPInit{
		Type: int(attr.Type), Send: attr.SendCQ.v, Recv: attr.RecvCQ.v,
		SendDepth: max(attr.SendDepth, 1), SendSGE: max(attr.SendSGE, 1),
		Inline: attr.Inline, SignalAll: attr.SignalAll, AtomicWrite: attr.AtomicWrite, Flush: attr.Flush,
	}
	if attr.SRQ != nil {
		init.SRQ = attr.SRQ.v
	} else {
		init.RecvDepth, init.RecvSGE = max(attr.RecvDepth, 1), max(attr.RecvSGE, 1)
	}
	v, err := pd.v.CreateQP(init)
	if err != nil {
		return nil, explainCreateQP(pd.ctx, init, err)
	}
	send, recv, err := v.Queues()
	if err != nil {
		_ = v.Destroy()
		return nil, failed("allocate the work request arrays", pd.ctx.name, err)
	}
	q.v, q.num, q.recv.q = v, v.Num(), recvQueueOf(recv)
	q.send.q = &sendQueue{SendQueue: send, every: attr.SignalEvery, foreign: &pd.ctx.foreign}
	if attr.Type == UD {
		q.send.q.ud = &pd.parent
		q.local.QKey = attr.QKey
	}
	q.attr.SendDepth, q.attr.RecvDepth = init.SendDepth, init.RecvDepth
	q.attr.SendSGE, q.attr.RecvSGE, q.attr.Inline = init.SendSGE, init.RecvSGE, init.Inline
	q.local.QPN = q.num
	q.choosePSN()
	pd.hold(kindQP)
	attr.SendCQ.hold(kindQP)
	attr.RecvCQ.hold(kindQP)
	if attr.SRQ != nil {
		attr.SRQ.hold(kindQP)
	}
	pd.ctx.objects.add(v.Identity(), q)
	return q, nil
}

func (a *QPAttr) check(pd *PD) error {
	e := failed("ibv_create_qp", pd.ctx.name, unix.EINVAL)
	switch {
	case a.Type != RC && a.Type != UD:
		e.Detail = fmt.Sprintf("transport %v", a.Type)
		e.Remedy = "use RC or UD"
	case a.Type != RC && a.AtomicWrite:
		e.Detail = fmt.Sprintf("atomic writes on %v", a.Type)
		e.Remedy = "they need an RC queue pair"
	case a.Type != RC && a.Flush:
		e.Detail = fmt.Sprintf("FLUSH on %v", a.Type)
		e.Remedy = "it needs an RC queue pair"
	case a.SendCQ == nil || a.RecvCQ == nil:
		e.Detail = "a completion queue is missing"
		e.Remedy = "set SendCQ and RecvCQ; they may be the same"
	case a.SendCQ.ctx != pd.ctx || a.RecvCQ.ctx != pd.ctx:
		e.Detail = "PD and completion queues are of different contexts"
		e.Remedy = "make all of them from one Context"
	case a.SRQ != nil && (a.SRQ.pd != pd || a.RecvDepth != 0 || a.RecvSGE != 0):
		e.Detail = "an SRQ of another PD, or a receive depth beside it"
		e.Remedy = "make the SRQ in the same PD; its depth is the receives' depth"
	case a.SignalEvery < 0 || a.SignalEvery > max(a.SendDepth, 1):
		e.Detail = fmt.Sprintf("a completion for every %d work requests, in a queue of %d", a.SignalEvery, max(a.SendDepth, 1))
		e.Remedy = "ask for one within the queue's depth: a completion gives back the places of those before it"
	case a.SignalEvery > 0 && a.SignalAll:
		e.Detail = "SignalEvery beside SignalAll"
		e.Remedy = "choose one"
	case min(a.SendDepth, a.RecvDepth, a.SendSGE, a.RecvSGE, a.Inline) < 0 || max(a.SendDepth, a.RecvDepth, a.Inline) > 1<<24 || max(a.SendSGE, a.RecvSGE) > 1<<12:
		e.Detail = fmt.Sprintf("depth %d/%d, SGEs %d/%d, inline %d", a.SendDepth, a.RecvDepth, a.SendSGE, a.RecvSGE, a.Inline)
		e.Remedy = "QueryDevice says what the device allows"
	default:
		return nil
	}
	return e
}

// explainCreateQP compares what was asked for with the device's limits.
func explainCreateQP(c *Context, init *libibverbs.QPInit, err error) error {
	e := failed("ibv_create_qp", c.name, err)
	e.Detail = fmt.Sprintf("depth %d/%d, SGEs %d/%d, inline %d", init.SendDepth, init.RecvDepth, init.SendSGE, init.RecvSGE, init.Inline)
	if a, qerr := c.v.QueryDevice(); qerr == nil {
		switch {
		case (init.AtomicWrite || init.Flush) && errors.Is(err, errors.ErrUnsupported):
			e.Remedy = extendedRemedy(init)
		case max(init.SendDepth, init.RecvDepth) > a.MaxQPWR:
			e.Remedy = fmt.Sprintf("the device allows a depth of at most %d", a.MaxQPWR)
		case max(init.SendSGE, init.RecvSGE) > a.MaxSGE:
			e.Remedy = fmt.Sprintf("the device allows at most %d SGEs", a.MaxSGE)
		case init.Inline > 0:
			e.Remedy = "try less inline data"
		}
	}
	return e
}

// extendedRemedy says what the operations take that ibv_post_send(3) does not know.
func extendedRemedy(init *libibverbs.QPInit) string {
	var list []string
	if init.AtomicWrite {
		list = append(list, "atomic writes take Linux 6.2, libibverbs 44 and a device that has them: leave AtomicWrite out, and use a compare-and-swap or a WRITE")
	}
	if init.Flush {
		list = append(list, "FLUSH takes Linux 6.2, libibverbs 45 and a device that has it: leave Flush out, and READ behind the WRITEs, which shows that they have arrived")
	}
	return strings.Join(list, "; ")
}

// Num returns the queue pair's number (QPN).
func (q *QP) Num() uint32 { return q.num }

// Attr returns the queue pair's attributes as the provider granted them: depths and SGE counts may
// be larger than asked for.
func (q *QP) Attr() QPAttr { return q.attr }

// Local returns this side's Endpoint, for the peer's Connect. [QP.Reset] changes it.
func (q *QP) Local() Endpoint {
	e := q.local
	e.PSN = q.psn.Load()
	return e
}

// choosePSN chooses another first packet number than before.
func (q *QP) choosePSN() { q.psn.Store((q.psn.Load() + 1 + rand.Uint32N(1<<24-1)) & (1<<24 - 1)) }

// State asks the device for the queue pair's state.
func (q *QP) State() (QPState, error) {
	if err := q.enter(); err != nil {
		return 0, err
	}
	defer q.leave()
	s, err := q.v.State()
	if err != nil {
		return 0, failed("ibv_query_qp", q.pd.ctx.name, err)
	}
	return QPState(s), nil
}

// PostSend posts work requests in order and returns how many the provider took. If posted is less
// than len(wrs), err says why wrs[posted] was refused; the NIC works on those before it. PostSend
// calls C once and allocates nothing. The memory of a work request stays as it is until the work
// request has completed, or with SendInline until PostSend has returned.
func (q *QP) PostSend(wrs []SendWR) (posted int, err error) {
	q.send.Lock()
	defer q.send.Unlock()
	if q.send.q == nil {
		return 0, os.ErrClosed
	}
	if q.attr.Type == UD { // the address handles stay open
		q.pd.ahs.RLock()
		defer q.pd.ahs.RUnlock()
	}
	posted, bad, errno := q.send.q.post(wrs)
	if bad == postOK {
		return posted, nil
	}
	return posted, q.explainPost("ibv_post_send", posted, q.attr.SendDepth, q.attr.SendSGE, bad, errno)
}

// PostRecv posts receives, and returns as [QP.PostSend] does. A queue pair takes receives in INIT
// and every later state. A queue pair with an SRQ takes none: they are posted to the SRQ.
func (q *QP) PostRecv(wrs []RecvWR) (posted int, err error) {
	q.recv.Lock()
	defer q.recv.Unlock()
	if q.recv.q == nil {
		if q.attr.SRQ != nil {
			return 0, q.noReceives()
		}
		return 0, os.ErrClosed
	}
	posted, bad, errno := q.recv.q.post(wrs)
	if bad == postOK {
		return posted, nil
	}
	return posted, q.explainPost("ibv_post_recv", posted, q.attr.RecvDepth, q.attr.RecvSGE, bad, errno)
}

func (q *QP) noReceives() error {
	e := failed("ibv_post_recv", q.pd.ctx.name, unix.EINVAL)
	e.Detail = fmt.Sprintf("QP %d has an SRQ", q.num)
	e.Remedy = "post to the SRQ"
	return e
}

func (q *QP) explainPost(op string, posted, depth, sges int, bad postRefusal, errno unix.Errno) error {
	e := explainPost(failed(op, q.pd.ctx.name, errno), depth, sges, bad, errno)
	e.Detail = fmt.Sprintf("QP %d, work request %d%s", q.num, posted, e.Detail)
	return e
}

// Reset puts the queue pair into RESET from every state, the error state too. The NIC drops the
// work requests that are posted. Some providers, mlx5 among them, also take completions out of the
// CQ that were not polled. Connect, or Activate, then brings the queue pair up again. Reset chooses
// a new first packet number, so that the peer does not take a late packet of the old connection
// for one of the next: the peer's Connect needs [QP.Local] again.
func (q *QP) Reset() error {
	err := q.to(&libibverbs.QPModify{State: int(StateReset)})
	if err == nil {
		q.choosePSN()
	}
	return err
}

// Err puts the queue pair into the error state. The NIC then completes everything that is posted as
// flushed.
func (q *QP) Err() error { return q.to(&libibverbs.QPModify{State: int(StateErr)}) }

// Drain takes the queue pair from RTS to SQD. The NIC ends a send that it has begun, and begins no
// other until Resume. [EventSQDrained] comes when the send queue has drained. rxe (seen with Linux
// 6.1 to 7.2) does not begin the sends that wait at Resume, but when another one is posted.
func (q *QP) Drain() error { return q.to(&libibverbs.QPModify{State: int(StateSQD), Notify: true}) }

// Resume takes the queue pair back to RTS: from SQD, or from SQE, to which a send that failed takes
// a UD queue pair.
func (q *QP) Resume() error {
	s, err := q.State()
	if err != nil {
		return err
	}
	if s != StateSQD && s != StateSQE {
		e := failed("ibv_modify_qp", q.pd.ctx.name, unix.EINVAL)
		e.Detail = fmt.Sprintf("QP %d is in %v; Resume works in SQD and SQE", q.num, s)
		e.Remedy = "Connect, or Activate, again"
		return e
	}
	return q.to(&libibverbs.QPModify{State: int(StateRTS), Resume: true, Current: int(s)})
}

func (q *QP) to(m *libibverbs.QPModify) error {
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	m.Type = int(q.attr.Type)
	return q.modify(m)
}

func (q *QP) modify(m *libibverbs.QPModify) error {
	err := q.v.Modify(m)
	// rxe may still be processing a packet. An error in it takes the queue pair to ERR
	// although rxe has answered the change to RESET (rxe_qp_reset in rxe_qp.c waits
	// for its tasks after it has set the state). At the next reset the tasks are idle.
	for again := 0; err == nil && m.State == int(StateReset); again++ {
		if s, asked := q.v.State(); asked != nil || s != int(StateErr) {
			break
		}
		if again == maxResets {
			e := failed("ibv_modify_qp", q.pd.ctx.name, unix.EAGAIN)
			e.Detail = fmt.Sprintf("QP %d is in ERR again after each of %d resets", q.num, 1+maxResets)
			e.Remedy = "try again when the peer sends nothing, or make another queue pair"
			return e
		}
		err = q.v.Modify(m)
	}
	if err != nil {
		e := failed("ibv_modify_qp", q.pd.ctx.name, err)
		e.Detail = fmt.Sprintf("QP %d to %v", q.num, QPState(m.State))
		return e
	}
	return nil
}

// maxResets bounds how often a reset is repeated.
const maxResets = 3

// Close destroys the queue pair. Work requests that are posted get no completion. Some providers,
// mlx5 among them, also take completions out of the CQ that were not polled: a caller that needs
// them polls first. Closing again does nothing.
func (q *QP) Close() error {
	return q.end(func() error {
		q.send.Lock()
		defer q.send.Unlock()
		q.recv.Lock()
		defer q.recv.Unlock()
		if err := q.v.Destroy(); err != nil {
			return failed("ibv_destroy_qp", q.pd.ctx.name, err)
		}
		q.send.q.Free()
		if q.recv.q != nil {
			q.recv.q.Free()
		}
		q.send.q, q.recv.q = nil, nil
		q.pd.ctx.objects.remove(q.v.Identity(), q)
		q.pd.drop(kindQP)
		q.attr.SendCQ.drop(kindQP)
		q.attr.RecvCQ.drop(kindQP)
		if q.attr.SRQ != nil {
			q.attr.SRQ.drop(kindQP)
		}
		return nil
	})
}

// postRefusal is why a work request was not posted.
type postRefusal int

const (
	postOK          postRefusal = iota
	postTooMany                 // more SGEs than the queue was made for
	postOpcode                  // an opcode that this transport does not have
	postNoAH                    // no address handle, or none that is open
	postNoAtomic                // an atomic write on a queue pair made without them
	postNoFlush                 // a FLUSH on a queue pair made without it
	postNoSGE                   // SGEs on an operation that has none
	postNoPlacement             // a FLUSH without a placement, or with an unknown one
	postForeign                 // inline data that is not at its address in this process
	postUnaligned               // an atomic operation at no multiple of 8
	postProvider                // the provider's errno
)

// explainPost says in e what is wrong with a work request.
func explainPost(e *failure.Error, depth, sges int, bad postRefusal, errno unix.Errno) *failure.Error {
	switch {
	case bad == postTooMany:
		e.Detail = " has too many SGEs"
		e.Remedy = fmt.Sprintf("the queue was made for %d", sges)
	case bad == postOpcode:
		e.Detail = " has an opcode that this transport does not have"
	case bad == postNoAH:
		e.Detail = " names no open address handle of this PD"
		e.Remedy = "each work request of a UD queue pair needs AH, QPN and QKey"
	case bad == postNoAtomic:
		e.Detail = " is an atomic write"
		e.Remedy = "make the queue pair with QPAttr.AtomicWrite"
	case bad == postNoFlush:
		e.Detail = " is a FLUSH"
		e.Remedy = "make the queue pair with QPAttr.Flush"
	case bad == postNoSGE:
		e.Detail = " has SGEs, which neither an atomic write nor a FLUSH has"
		e.Remedy = "put an atomic write's 8 bytes into CompareAdd, and a FLUSH's range into RemoteAddr and FlushLength"
	case bad == postNoPlacement:
		e.Detail = " is a FLUSH with no placement, or with an unknown one"
		e.Remedy = "set Placement to FlushGlobal, FlushPersistent or both"
	case bad == postForeign:
		e.Detail = " is to copy inline data from a dma-buf or a device pointer, or from below 64 KiB: the CPU copies it, from this process's own memory"
		e.Remedy = "post memory of a dma-buf or a GPU without SendInline; for inline data from this process's memory leave LKey 0"
	case bad == postUnaligned:
		e.Detail = " is an atomic operation at a remote address that is no multiple of 8"
		e.Remedy = "choose a multiple of 8: this NIC or the peer's refuses every other address (InfiniBand 1.2, 9.4.5)"
	case errno == unix.ENOMEM:
		e.Remedy = fmt.Sprintf("the queue holds %d; poll completions before posting more", depth)
	case errno == unix.EINVAL:
		e.Remedy = "check the queue's state, opcode, flags and SGEs"
	}
	return e
}
