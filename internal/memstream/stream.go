// SPDX-License-Identifier: Apache-2.0

package memstream

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/rc"
)

// Addr is the address of a stream: "host:port", where host is any text.
type Addr string

// Network returns "in-process".
func (Addr) Network() string { return rc.InProcess }

// String returns the address.
func (a Addr) String() string { return string(a) }

// HostAddr is the address of a stream of a network with Hosts.
type HostAddr struct{ Addr }

// IsLoopback reports whether no other machine has the address.
func (a HostAddr) IsLoopback() bool { return loopback(string(a.Addr)) }

// loopback reports whether an address has a loopback address for its host, or localhost.
func loopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// is returns an address as one of the network.
func (s *Network) is(a Addr) net.Addr {
	if s.opt.Hosts {
		return HostAddr{a}
	}
	return a
}

// Stream is one end of a connection of bytes in memory. It implements net.Conn, with the
// behaviour of TCP: after the peer has closed, Read returns the rest of the bytes and then
// io.EOF, and Write returns EPIPE.
type Stream struct {
	pair          *streamPair
	local, remote Addr
	in, out       *half
	read, write   deadline
	closed        atomic.Bool
	lost          atomic.Bool   // a silence was too long for this end
	silence       time.Duration // the time after which a silence ends it; the pair's mutex guards it
	limit         *time.Timer   // of a silence; the pair's mutex guards it
}

// streamPair is the two ends of a connection.
type streamPair struct {
	streams *Network
	ends    [2]*Stream
	at      [2]Host // the devices; nil for those without

	mu   sync.Mutex
	open int
}

func newStreamPair(s *Network, local, remote Addr, at [2]Host) *streamPair {
	there, back := newHalf(s.opt.Buffer), newHalf(s.opt.Buffer)
	p := &streamPair{streams: s, at: at, open: 2}
	p.ends[0] = &Stream{pair: p, local: local, remote: remote, in: back, out: there, silence: s.opt.Silence}
	p.ends[1] = &Stream{pair: p, local: remote, remote: local, in: there, out: back, silence: s.opt.Silence}
	return p
}

// failed describes an error as package net does; io.EOF stays as it is.
func (s *Stream) failed(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: rc.InProcess, Source: s.local, Addr: s.remote, Err: err}
}

// Read takes bytes that the peer has written. It waits for the first of them.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.in.read(p, &s.read, s.end)
	return n, s.failed("read", err)
}

// Write gives bytes to the peer. It waits while the buffer is full.
func (s *Stream) Write(p []byte) (int, error) {
	n, err := s.out.write(p, &s.write, s.end)
	return n, s.failed("write", err)
}

// end returns why this end is over; nil if it is not.
func (s *Stream) end() error {
	switch {
	case s.closed.Load():
		return net.ErrClosed
	case s.lost.Load():
		return unix.ETIMEDOUT
	}
	return nil
}

// CloseWrite ends what this end writes; it can still read.
func (s *Stream) CloseWrite() error {
	if s.closed.Load() {
		return s.failed("close", net.ErrClosed)
	}
	s.out.end()
	return nil
}

// Close closes this end.
func (s *Stream) Close() error {
	if s.closed.Swap(true) {
		return s.failed("close", net.ErrClosed)
	}
	s.out.end()
	s.in.leave()
	s.pair.left()
	return nil
}

// left removes the pair when both ends are closed.
func (p *streamPair) left() {
	p.mu.Lock()
	p.open--
	over := p.open == 0
	if over {
		p.stop()
	}
	p.mu.Unlock()
	if over {
		p.streams.mu.Lock()
		delete(p.streams.pairs, p)
		p.streams.mu.Unlock()
	}
}

// SetSilence sets the time after which a silence that begins later ends this end, as
// TCP_USER_TIMEOUT does.
func (s *Stream) SetSilence(d time.Duration) {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	s.silence = d
}

// LocalAddr returns the address of this end.
func (s *Stream) LocalAddr() net.Addr { return s.pair.streams.is(s.local) }

// RemoteAddr returns the address of the peer.
func (s *Stream) RemoteAddr() net.Addr { return s.pair.streams.is(s.remote) }

// SetDeadline sets the deadlines of Read and Write.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of Read.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.set(&s.read, s.in, t) }

// SetWriteDeadline sets the deadline of Write.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.set(&s.write, s.out, t) }

func (s *Stream) set(d *deadline, h *half, t time.Time) error {
	if s.closed.Load() {
		return s.failed("set", net.ErrClosed)
	}
	d.set(t, func() { h.change(func() {}) })
	return nil
}

// sever ends the connection, at once or in silence.
func (p *streamPair) sever(how Loss) {
	there, back := p.ends[0].out, p.ends[1].out
	if how == Reset {
		reset(there, back)
		return
	}
	there.mute(true)
	back.mute(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.ends {
		if p.open > 0 && s.limit == nil {
			s.limit = time.AfterFunc(s.silence, s.timeOut)
		}
	}
}

// timeOut ends one end of a connection in silence. The other end learns of it after the silence.
func (s *Stream) timeOut() {
	s.lost.Store(true)
	s.in.change(func() {})
	s.out.change(func() {})
}

// stop stops the limits of a silence. The caller holds the mutex.
func (p *streamPair) stop() {
	for _, s := range p.ends {
		if s.limit != nil {
			s.limit.Stop()
			s.limit = nil
		}
	}
}

// mend ends a silence.
func (p *streamPair) mend() {
	p.mu.Lock()
	p.stop()
	p.mu.Unlock()
	if p.ends[0].lost.Load() || p.ends[1].lost.Load() { // its host answers with a reset
		reset(p.ends[0].out, p.ends[1].out)
	}
	for _, s := range p.ends {
		s.out.mute(false)
	}
}
