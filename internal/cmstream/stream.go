// SPDX-License-Identifier: Apache-2.0

package cmstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/cm"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// Stream is a net.Conn over a queue pair that rdma_cm has connected; the exchange uses it as
// it uses TCP. Bytes go as messages of at most a chunk. Write waits for each; the NIC waits
// for a receiver that falls behind (receiver not ready), as TCP's window would.
type Stream struct {
	cfg    *Config
	id     *cm.ID
	local  Addr
	remote Addr
	client bool

	pd             *ibvfd.PD
	mem            *hostmem.Buf
	mr             *ibvfd.MR
	sendCQ, recvCQ *ibvfd.CQ
	qp             *ibvfd.QP
	pinned         bool

	life  context.Context
	end   context.CancelCauseFunc
	watch sync.WaitGroup
	ended chan struct{} // closed when cause is set
	cause error         // why nothing more can be read
	first sync.Once     // sets cause once

	read struct {
		sync.Mutex
		*deadline
		broken error
		slot   int    // the slot of rest
		rest   []byte // received and not read
	}
	write struct {
		sync.Mutex
		*deadline
		broken error
		last   time.Time // the last answer of the peer's NIC
	}
	alive atomic.Int32 // keepalive WRITEs, for tests

	closing sync.Mutex
	closed  bool
}

// causeWait bounds how long a Read whose receive was flushed waits for the cause.
const causeWait = 250 * time.Millisecond

const (
	streamChunk = 4 << 10
	streamSlots = 16 // chunks that may arrive before a Read
	streamSize  = (streamSlots + 1) * streamChunk
)

// newStream takes an ID over; establish connects it.
func newStream(cfg *Config, id *cm.ID, client bool) *Stream {
	s := &Stream{cfg: cfg, id: id, local: Addr(id.LocalAddr()), remote: Addr(id.RemoteAddr()), client: client, ended: make(chan struct{})}
	s.life, s.end = context.WithCancelCause(context.Background())
	s.read.deadline, s.write.deadline = newDeadline(s.life), newDeadline(s.life)
	return s
}

// helloCM is the private data of rdma_cm requests by endpoints. It distinguishes them from
// requests of other programs.
var helloCM = []byte("GPR1 gpurdma")

// Establish makes the queue pair and connects it. Before that the stream cannot be read or
// written.
func (s *Stream) Establish(ctx context.Context) error {
	if s.id.Device() != s.cfg.Device.Name() {
		if !s.client {
			_ = s.id.Reject([]byte("another NIC is meant"))
		}
		return otherNIC(s.remote.String(), s.id.Device(), s.cfg.Device.Name())
	}
	if !s.client && (len(s.id.PrivateData()) < len(helloCM) || string(s.id.PrivateData()[:len(helloCM)]) != string(helloCM)) {
		_ = s.id.Reject([]byte("this is a gpurdma endpoint"))
		return fmt.Errorf("%w: a request of another program: %q", wire.ErrMalformed, s.id.PrivateData())
	}
	if err := s.open(); err != nil {
		return err
	}
	var err error
	if s.client {
		_, err = s.id.Connect(ctx, s.qp, s.param())
	} else {
		err = s.id.Accept(ctx, s.qp, s.param())
	}
	if err != nil {
		return err
	}
	s.write.last = time.Now()
	s.watch.Go(s.listen)
	s.watch.Go(s.keepalive)
	return nil
}

// Path returns the path that rdma_cm has resolved.
func (s *Stream) Path() (ibvfd.ManagedAttr, error) { return s.id.Attributes() }

// param returns the parameters for rdma_cm. Values that it does not accept, [ibvfd.Zero] above
// all, apply only to the queue pairs for data: the exchange uses a default then.
func (s *Stream) param() cm.Param {
	p := cm.Param{
		PrivateData: helloCM, RNRRetry: 7, ResponderResources: 1, InitiatorDepth: 1,
		Access: ibvfd.AccessRemoteWrite, // for keepalive WRITEs of 0 bytes
	}
	if s.cfg.Connect.Timeout <= 31 {
		p.Timeout = s.cfg.Connect.Timeout
	}
	if s.cfg.Connect.RetryCount <= 7 {
		p.RetryCount = s.cfg.Connect.RetryCount
	}
	return p
}

// open makes the queue pair, with receives posted. The peer is not known yet, so the queue
// pair has a protection domain of its own: in the NIC's domain, a peer that guesses a key
// would reach memory that is shared with others.
func (s *Stream) open() (err error) {
	d := s.cfg.Device
	if err := s.cfg.Pin(streamSize, "an exchange over rdma_cm"); err != nil {
		return err
	}
	s.pinned = true
	if s.pd, err = d.Context().AllocPD(); err != nil {
		return err
	}
	if s.mem, err = hostmem.Alloc(streamSize); err != nil {
		return err
	}
	if s.mr, err = s.pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: s.mem.Bytes(), Length: streamSize, Access: ibvfd.AccessLocalWrite, Owner: s.mem}); err != nil {
		return err
	}
	if s.sendCQ, err = d.Context().CreateCQWith(ibvfd.CQAttr{Depth: 2, Events: true}); err != nil {
		return err
	}
	if s.recvCQ, err = d.Context().CreateCQWith(ibvfd.CQAttr{Depth: streamSlots, Events: true}); err != nil {
		return err
	}
	if s.qp, err = s.pd.CreateQP(ibvfd.QPAttr{
		Type: ibvfd.RC, SendCQ: s.sendCQ, RecvCQ: s.recvCQ, SendDepth: 1, RecvDepth: streamSlots, Port: s.id.Port(),
	}); err != nil {
		return err
	}
	if err := s.qp.Init(ibvfd.ConnectAttr{}); err != nil {
		return err
	}
	for slot := range streamSlots {
		if err := s.post(slot); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stream) post(slot int) error {
	_, err := s.qp.PostRecv([]ibvfd.RecvWR{{ID: uint64(slot), SGE: []ibvfd.SGE{s.sge(slot*streamChunk, streamChunk)}}})
	return err
}

func (s *Stream) sge(off, n int) ibvfd.SGE {
	return ibvfd.SGE{Addr: s.mr.IOVA() + uint64(off), Length: uint32(n), LKey: s.mr.LKey()}
}

// listen waits until the peer ends the connection.
func (s *Stream) listen() {
	err := s.id.Wait(s.life)
	if s.life.Err() != nil {
		return
	}
	if err == nil {
		err = io.EOF
	}
	s.fail(err)
}

// fail makes Read return cause, after the bytes that came before.
func (s *Stream) fail(cause error) {
	s.first.Do(func() {
		s.cause = cause
		close(s.ended)
	})
	_ = s.qp.Err() // flushes the receives; fails if the queue pair is closed, or its device is gone
}

// keepalive detects a peer whose machine is gone: the peer's NIC answers a WRITE of 0 bytes,
// without any effect on the peer.
func (s *Stream) keepalive() {
	tick := time.NewTicker(s.cfg.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.life.Done():
			return
		}
		if !s.write.TryLock() {
			continue // a Write under way detects it itself
		}
		var err error
		if s.write.broken == nil && time.Since(s.write.last) >= s.cfg.KeepAlive {
			if err = s.send(ibvfd.SendWR{Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled}, func(wait func(context.Context) error) error { return wait(s.life) }); err == nil {
				s.alive.Add(1)
			}
		}
		s.write.Unlock()
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// Read returns bytes that have arrived.
func (s *Stream) Read(p []byte) (int, error) {
	s.read.Lock()
	defer s.read.Unlock()
	if err := context.Cause(s.life); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	for len(s.read.rest) == 0 {
		if s.read.broken != nil {
			return 0, s.read.broken
		}
		var wc [1]ibvfd.WC
		if err := s.read.wait(func(ctx context.Context) error {
			if ctx.Err() != nil { // a deadline that has passed goes before bytes that have arrived
				return ctx.Err()
			}
			_, err := s.recvCQ.Wait(ctx, wc[:])
			return err
		}); err != nil {
			return 0, err
		}
		switch {
		case wc[0].Status != ibvfd.WCSuccess:
			s.read.broken = s.over(&wc[0])
		case wc[0].Opcode != ibvfd.WCOpRecv || wc[0].ByteLen == 0 || wc[0].ByteLen > streamChunk: // not from a stream
			s.read.broken = fmt.Errorf("%w: completion %d of %d bytes", wire.ErrMalformed, wc[0].Opcode, wc[0].ByteLen)
			s.fail(s.read.broken)
		default:
			s.read.slot = int(wc[0].ID)
			s.read.rest = s.mem.Bytes()[s.read.slot*streamChunk:][:wc[0].ByteLen]
		}
	}
	n := copy(p, s.read.rest)
	if s.read.rest = s.read.rest[n:]; len(s.read.rest) == 0 {
		if err := s.post(s.read.slot); err != nil {
			s.fail(err)
		}
	}
	return n, nil
}

// over returns the reason why a receive was flushed. A failed send also flushes receives, and
// sets the cause at about the same time.
func (s *Stream) over(wc *ibvfd.WC) error {
	select {
	case <-s.ended:
		return s.cause
	case <-s.life.Done():
		return context.Cause(s.life)
	case <-time.After(causeWait):
		return fmt.Errorf("%w: %w", rc.ErrNotConnected, wc.Err())
	}
}

// Write returns when the peer's NIC has received all of p. After a Write that missed its
// deadline the stream cannot be written to.
func (s *Stream) Write(p []byte) (n int, err error) {
	s.write.Lock()
	defer s.write.Unlock()
	for n < len(p) {
		if err := context.Cause(s.life); err != nil {
			return n, err
		}
		if s.write.broken != nil {
			return n, s.write.broken
		}
		m := copy(s.mem.Bytes()[streamSlots*streamChunk:], p[n:])
		if err := s.send(ibvfd.SendWR{
			Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled, SGE: []ibvfd.SGE{s.sge(streamSlots*streamChunk, m)},
		}, s.write.wait); err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// send posts one work request and waits for its completion. The caller holds the write lock.
func (s *Stream) send(wr ibvfd.SendWR, waiting func(func(context.Context) error) error) (err error) {
	defer func() { s.write.broken = err }()
	if _, err := s.qp.PostSend([]ibvfd.SendWR{wr}); err != nil {
		return err
	}
	var wc [1]ibvfd.WC
	if err := waiting(func(ctx context.Context) error {
		_, err := s.sendCQ.Wait(ctx, wc[:])
		return err
	}); err != nil {
		return err
	}
	if wc[0].Status != ibvfd.WCSuccess {
		err := fmt.Errorf("%w: %w", rc.ErrNotConnected, wc[0].Err())
		s.fail(err)
		return err
	}
	s.write.last = time.Now()
	return nil
}

// Close ends the connection: the peer reads io.EOF. A second Close does nothing.
func (s *Stream) Close() error {
	s.end(net.ErrClosed)
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	// Reads and Writes under way end now, and do not use the memory any more.
	s.read.Lock()
	defer s.read.Unlock()
	s.write.Lock()
	defer s.write.Unlock()
	s.watch.Wait()
	return s.cfg.End(s.free)
}

// free frees everything, in order; it may be tried again.
func (s *Stream) free() error {
	if err := s.id.Close(); err != nil {
		return err
	}
	if s.qp != nil {
		if err := s.qp.Close(); err != nil {
			return err
		}
	}
	for _, cq := range []*ibvfd.CQ{s.sendCQ, s.recvCQ} {
		if cq != nil {
			if err := cq.Close(); err != nil {
				return err
			}
		}
	}
	if s.mr != nil {
		if err := s.mr.Close(); err != nil {
			return err
		}
	}
	if s.mem != nil {
		if err := s.mem.Close(); err != nil {
			return err
		}
	}
	if s.pd != nil {
		if err := s.pd.Close(); err != nil {
			return err
		}
	}
	if s.pinned {
		s.cfg.Unpin(streamSize)
		s.pinned = false
	}
	return nil
}

// LocalAddr returns this side's address.
func (s *Stream) LocalAddr() net.Addr { return s.local }

// RemoteAddr returns the peer's address, as the peer states it.
func (s *Stream) RemoteAddr() net.Addr { return s.remote }

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline bounds Reads, including one that waits now.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.read.set(t)
	return nil
}

// SetWriteDeadline is SetReadDeadline for Writes.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.write.set(t)
	return nil
}
