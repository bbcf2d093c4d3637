// SPDX-License-Identifier: Apache-2.0

package memstream

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/rc"
)

// backlog is the number of connections that wait for Accept.
const backlog = 128

// Loss is the way in which a stream ends when its path is cut.
type Loss int

// The losses.
const (
	Reset  Loss = iota // both ends get ECONNRESET at once; a dial fails
	Silent             // nothing arrives; after some time both ends get ETIMEDOUT
)

// Host is a machine, or a device of one, by which streams are cut. Any comparable value is one; nil
// is no host.
type Host any

// Options tune a network. The zero value is usable.
type Options struct {
	Silence time.Duration // the time after which a silence ends an end of a stream, unless Stream.SetSilence sets another; default 15 s
	Buffer  int           // bytes that a stream holds in each direction; default 64 KiB
	Hosts   bool          // the host of an address counts: only loopback addresses and localhost are of this machine
}

// Network is connections of bytes in memory. Its methods may be called from several goroutines at
// once.
type Network struct {
	opt Options

	mu        sync.Mutex
	listeners map[string]*Listener
	pairs     map[*streamPair]bool
	port      int // the last that was chosen
	cuts      []streamCut
	mended    chan struct{} // closed and replaced by Mend
}

// New makes a network.
func New(opt Options) *Network {
	opt.Silence, opt.Buffer = cmp.Or(opt.Silence, 15*time.Second), cmp.Or(opt.Buffer, 64<<10)
	return &Network{opt: opt, listeners: map[string]*Listener{}, pairs: map[*streamPair]bool{}, mended: make(chan struct{}), port: 1 << 15}
}

// streamCut is a call of Cut.
type streamCut struct {
	how   Loss
	among []Host
}

// covers reports whether a cut concerns a stream between two devices.
func (c *streamCut) covers(at [2]Host) bool {
	a, b := slices.Contains(c.among, at[0]), slices.Contains(c.among, at[1])
	switch len(c.among) {
	case 0:
		return true
	case 1:
		return a || b
	}
	return a && b
}

// Cut cuts streams, and prevents new ones: all streams of the network; those of one host, as if its
// machine were lost; or those between two or more hosts.
func (s *Network) Cut(how Loss, among ...Host) {
	c := streamCut{how: how, among: among}
	s.mu.Lock()
	s.cuts = append(s.cuts, c)
	var concerned []*streamPair
	for p := range s.pairs {
		if c.covers(p.at) {
			concerned = append(concerned, p)
		}
	}
	s.mu.Unlock()
	for _, p := range concerned {
		p.sever(how)
	}
}

// Mend undoes all calls of Cut. Silent streams go on, unless they have failed meanwhile.
func (s *Network) Mend() {
	s.mu.Lock()
	s.cuts = nil
	close(s.mended)
	s.mended = make(chan struct{})
	var all []*streamPair
	for p := range s.pairs {
		all = append(all, p)
	}
	s.mu.Unlock()
	for _, p := range all {
		p.mend()
	}
}

// cut returns how a path between two devices is cut.
func (s *Network) cut(at [2]Host) (how Loss, cut bool) {
	for _, c := range s.cuts {
		if c.covers(at) {
			return c.how, true
		}
	}
	return 0, false
}

// Listener accepts streams. It implements net.Listener.
type Listener struct {
	streams *Network
	addr    Addr
	at      Host
	queue   chan *Stream
	done    chan struct{}
}

// Listen listens on an address of a host, "host:port"; port 0 chooses one. A host part that is empty
// or unspecified, as in ":1" and "0.0.0.0:1", stands for all hosts.
func (s *Network) Listen(addr string, at Host) (net.Listener, error) {
	failed := func(err error) error {
		return &net.OpError{Op: "listen", Net: rc.InProcess, Addr: Addr(addr), Err: err}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, failed(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if port == "0" {
		port = strconv.Itoa(s.choose())
	}
	l := &Listener{streams: s, addr: Addr(net.JoinHostPort(host, port)), at: at, queue: make(chan *Stream, backlog), done: make(chan struct{})}
	if s.listeners[l.key()] != nil {
		return nil, failed(unix.EADDRINUSE)
	}
	s.listeners[l.key()] = l
	return l, nil
}

// choose returns a port.
func (s *Network) choose() int {
	s.port++
	return s.port
}

// key returns the key of the listener: its address, or the port only if it listens for all
// hosts.
func (l *Listener) key() string {
	host, port, _ := net.SplitHostPort(string(l.addr))
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return ":" + port
	}
	return l.streams.numeric(string(l.addr))
}

// numeric returns an address with 127.0.0.1 in place of localhost, with the option Hosts.
func (s *Network) numeric(addr string) string {
	if host, port, _ := net.SplitHostPort(addr); s.opt.Hosts && host == "localhost" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// Accept waits for a stream.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
	default:
		select {
		case s := <-l.queue:
			return s, nil
		case <-l.done:
		}
	}
	return nil, &net.OpError{Op: "accept", Net: rc.InProcess, Addr: l.addr, Err: net.ErrClosed}
}

// Close ends the listener, and resets the streams that were not accepted.
func (l *Listener) Close() error {
	s := l.streams
	s.mu.Lock()
	if s.listeners[l.key()] != l {
		s.mu.Unlock()
		return &net.OpError{Op: "close", Net: rc.InProcess, Addr: l.addr, Err: net.ErrClosed}
	}
	delete(s.listeners, l.key())
	close(l.done)
	var left []*Stream
	for more := true; more; {
		select {
		case c := <-l.queue:
			left = append(left, c)
		default: // Accept may have taken the last one
			more = false
		}
	}
	s.mu.Unlock()
	for _, c := range left {
		c.pair.sever(Reset)
		_ = c.Close()
	}
	return nil
}

// Addr returns the address that the listener has.
func (l *Listener) Addr() net.Addr { return l.streams.is(l.addr) }

// Dial connects a host, which has that name in its own address, to a listener. It returns
// ECONNREFUSED if the address has no listener.
func (s *Network) Dial(ctx context.Context, addr string, from Host, name string) (net.Conn, error) {
	for {
		c, again, err := s.dial(addr, from, name)
		if again == nil {
			if err != nil {
				return nil, &net.OpError{Op: "dial", Net: rc.InProcess, Addr: Addr(addr), Err: err}
			}
			return c, nil
		}
		select {
		case <-again:
		case <-time.After(time.Millisecond): // the listener's queue may have room
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: rc.InProcess, Addr: Addr(addr), Err: ctx.Err()}
		}
		if err := ctx.Err(); err != nil {
			return nil, &net.OpError{Op: "dial", Net: rc.InProcess, Addr: Addr(addr), Err: err}
		}
	}
}

// dial connects, or returns a channel that is closed when another try may succeed.
func (s *Network) dial(addr string, from Host, name string) (_ net.Conn, again <-chan struct{}, err error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[s.numeric(addr)]
	if l == nil {
		l = s.listeners[":"+port]
	}
	if l == nil {
		return nil, nil, unix.ECONNREFUSED
	}
	at := [2]Host{from, l.at}
	if how, cut := s.cut(at); cut {
		if how == Reset {
			return nil, nil, unix.EHOSTUNREACH
		}
		return nil, s.mended, nil
	}
	host := name
	if dialled, _, _ := net.SplitHostPort(addr); s.opt.Hosts && (dialled == "" || loopback(addr)) {
		host = "127.0.0.1" // as with TCP
	}
	local := Addr(net.JoinHostPort(host, fmt.Sprint(s.choose())))
	if s.opt.Hosts && strings.HasPrefix(addr, ":") {
		addr = host + addr
	}
	p := newStreamPair(s, local, Addr(addr), at)
	select {
	case l.queue <- p.ends[1]:
		s.pairs[p] = true
		return p.ends[0], nil, nil
	default:
		return nil, s.mended, nil
	}
}
