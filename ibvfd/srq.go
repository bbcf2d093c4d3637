// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// SRQAttr says what kind of shared receive queue to make.
type SRQAttr struct {
	Depth int // receives that may be outstanding; 0 means 1
	SGE   int // SGEs in one receive; 0 means 1
}

// SRQ is a shared receive queue. It has the receives of several queue pairs: when a message comes for
// one of these, the NIC takes the next receive.
type SRQ struct {
	parent
	pd    *PD
	v     libibverbs.SRQ
	sge   int          // as granted
	depth atomic.Int64 // as granted, at first or by Resize

	recv struct {
		sync.Mutex
		q *recvQueue // nil once the SRQ is closed
	}
}

// CreateSRQ makes a shared receive queue. If the provider refuses it, the error compares attr with the
// device's limits. The caller closes the SRQ after the queue pairs that use it and before the PD.
func (pd *PD) CreateSRQ(attr SRQAttr) (*SRQ, error) {
	if err := pd.enter(); err != nil {
		return nil, err
	}
	defer pd.leave()
	asked := attr
	attr.Depth, attr.SGE = max(attr.Depth, 1), max(attr.SGE, 1)
	if min(asked.Depth, asked.SGE) < 0 || attr.Depth > 1<<24 || attr.SGE > 1<<12 {
		return nil, pd.explainCreateSRQ(asked, unix.EINVAL)
	}
	init := libibverbs.SRQInit{Depth: attr.Depth, SGE: attr.SGE}
	v, err := pd.v.CreateSRQ(&init)
	if err != nil {
		return nil, pd.explainCreateSRQ(asked, err)
	}
	q, err := v.Queue()
	if err != nil {
		_ = v.Destroy()
		return nil, failed("allocate the work request array", pd.ctx.name, err)
	}
	s := &SRQ{pd: pd, v: v, sge: init.SGE}
	s.depth.Store(int64(init.Depth))
	s.recv.q = &recvQueue{q}
	pd.hold(kindSRQ)
	pd.ctx.objects.add(v.Identity(), s)
	return s, nil
}

func (pd *PD) explainCreateSRQ(attr SRQAttr, err error) error {
	e := failed("ibv_create_srq", pd.ctx.name, err)
	e.Detail = fmt.Sprintf("depth %d, SGEs %d", attr.Depth, attr.SGE)
	a, qerr := pd.ctx.v.QueryDevice()
	switch {
	case qerr != nil:
	case a.MaxSRQ == 0:
		e.Remedy = "the device has no shared receive queues: post receives to each queue pair"
	case attr.Depth > a.MaxSRQWR:
		e.Remedy = fmt.Sprintf("the device allows a depth of at most %d", a.MaxSRQWR)
	case attr.SGE > a.MaxSRQSGE:
		e.Remedy = fmt.Sprintf("the device allows at most %d SGEs", a.MaxSRQSGE)
	}
	return e
}

// Attr returns the attributes as the provider granted them: both may be larger than asked for.
func (s *SRQ) Attr() SRQAttr { return SRQAttr{Depth: int(s.depth.Load()), SGE: s.sge} }

// Post posts receives, and returns as [QP.PostSend] does.
func (s *SRQ) Post(wrs []RecvWR) (posted int, err error) {
	s.recv.Lock()
	defer s.recv.Unlock()
	if s.recv.q == nil {
		return 0, os.ErrClosed
	}
	posted, bad, errno := s.recv.q.post(wrs)
	if bad == postOK {
		return posted, nil
	}
	e := explainPost(failed("ibv_post_srq_recv", s.pd.ctx.name, errno), int(s.depth.Load()), s.sge, bad, errno)
	e.Detail = fmt.Sprintf("work request %d%s", posted, e.Detail)
	return posted, e
}

// SetLimit asks the NIC for one EventSRQLimit when fewer than n receives are left. The event switches
// the limit off, and so does n 0.
func (s *SRQ) SetLimit(n int) error {
	if depth := s.Attr().Depth; n < 0 || n > depth {
		return s.explainModify(fmt.Sprintf("limit %d of %d", n, depth), unix.EINVAL)
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := s.v.SetLimit(n); err != nil {
		return s.explainModify(fmt.Sprintf("limit %d", n), err)
	}
	return nil
}

// Limit asks the device for the limit that is set: 0 is none.
func (s *SRQ) Limit() (int, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	_, limit, err := s.v.Query()
	if err != nil {
		return 0, failed("ibv_query_srq", s.pd.ctx.name, err)
	}
	return limit, nil
}

// Resize makes room for depth receives, and for no fewer than are posted. Few devices can: the others
// answer an error of ibv_modify_srq.
func (s *SRQ) Resize(depth int) error {
	if depth < 1 || depth > 1<<24 {
		return s.explainModify(fmt.Sprintf("depth %d", depth), unix.EINVAL)
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := s.v.Resize(depth); err != nil {
		return s.explainModify(fmt.Sprintf("depth %d", depth), err)
	}
	if granted, _, err := s.v.Query(); err == nil {
		depth = max(depth, granted)
	}
	s.depth.Store(int64(depth))
	return nil
}

func (s *SRQ) explainModify(detail string, err error) error {
	e := failed("ibv_modify_srq", s.pd.ctx.name, err)
	e.Detail = detail
	return e
}

// Close destroys the queue. The receives in it get no completions. While queue pairs use the queue,
// Close destroys nothing and answers [failure.ErrInUse]. Closing again does nothing.
func (s *SRQ) Close() error {
	return s.close("ibv_destroy_srq", s.pd.ctx.name, func() error {
		s.recv.Lock()
		defer s.recv.Unlock()
		if err := s.v.Destroy(); err != nil {
			return failed("ibv_destroy_srq", s.pd.ctx.name, err)
		}
		s.recv.q.Free()
		s.recv.q = nil
		s.pd.ctx.objects.remove(s.v.Identity(), s)
		s.pd.drop(kindSRQ)
		return nil
	})
}
