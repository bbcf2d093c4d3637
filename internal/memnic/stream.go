// SPDX-License-Identifier: Apache-2.0

package memnic

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

// Network returns "memory".
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
func (s *streams) is(a Addr) net.Addr {
	if s.hosts {
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
}

// streamPair is the two ends of a connection.
type streamPair struct {
	streams *streams
	ends    [2]*Stream
	at      [2]*adapter // the devices; nil for those without

	mu      sync.Mutex
	open    int
	silence time.Duration // the time after which a silence ends the connection
	set     bool          // by SetSilence
	limit   *time.Timer   // of a silence
}

func newStreamPair(s *streams, opt *options, local, remote Addr, at [2]*adapter) *streamPair {
	there, back := newHalf(opt.buffer), newHalf(opt.buffer)
	p := &streamPair{streams: s, at: at, open: 2, silence: opt.silence}
	p.ends[0] = &Stream{pair: p, local: local, remote: remote, in: back, out: there}
	p.ends[1] = &Stream{pair: p, local: remote, remote: local, in: there, out: back}
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
	n, err := s.in.read(p, &s.read, s.closed.Load)
	return n, s.failed("read", err)
}

// Write gives bytes to the peer. It waits while the buffer is full.
func (s *Stream) Write(p []byte) (int, error) {
	n, err := s.out.write(p, &s.write, s.closed.Load)
	return n, s.failed("write", err)
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
	if over && p.limit != nil {
		p.limit.Stop()
	}
	p.mu.Unlock()
	if over {
		p.streams.mu.Lock()
		delete(p.streams.pairs, p)
		p.streams.mu.Unlock()
	}
}

// SetSilence sets the time after which a silence that begins later ends the connection, as
// TCP_USER_TIMEOUT does. The shorter time of both ends applies.
func (s *Stream) SetSilence(d time.Duration) {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	if !s.pair.set || d < s.pair.silence {
		s.pair.silence, s.pair.set = d, true
	}
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
	halves := [2]*half{p.ends[0].out, p.ends[1].out}
	if how == Reset {
		for _, h := range halves {
			h.fail(unix.ECONNRESET)
		}
		return
	}
	for _, h := range halves {
		h.mute(true)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open > 0 && p.limit == nil {
		p.limit = time.AfterFunc(p.silence, func() {
			for _, h := range halves {
				h.fail(unix.ETIMEDOUT)
			}
		})
	}
}

// mend ends a silence.
func (p *streamPair) mend() {
	p.mu.Lock()
	if p.limit != nil {
		p.limit.Stop()
		p.limit = nil
	}
	p.mu.Unlock()
	for _, s := range p.ends {
		s.out.mute(false)
	}
}
