// SPDX-License-Identifier: Apache-2.0

package memnic

import (
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

// streams are the connections of bytes of a network.
type streams struct {
	mu        sync.Mutex
	listeners map[string]*Listener
	pairs     map[*streamPair]bool
	port      int // the last port that choose has returned
	cuts      []streamCut
	mended    chan struct{} // closed and replaced by MendExchanges
	hosts     bool          // as Hosts says
}

func (s *streams) init() {
	s.listeners, s.pairs, s.mended = map[string]*Listener{}, map[*streamPair]bool{}, make(chan struct{})
	s.port = 1 << 15
}

// streamCut is a call of CutExchanges.
type streamCut struct {
	how   Loss
	among []*adapter
}

// covers reports whether a cut concerns a stream between two devices.
func (c *streamCut) covers(at [2]*adapter) bool {
	a, b := slices.Contains(c.among, at[0]), slices.Contains(c.among, at[1])
	switch len(c.among) {
	case 0:
		return true
	case 1:
		return a || b
	}
	return a && b
}

// CutExchanges cuts streams, and prevents new ones: all streams of the network; those of one
// device, as if its machine were lost; or those between two or more devices.
func (n *Network) CutExchanges(how Loss, among ...*Device) {
	c := streamCut{how: how}
	for _, d := range among {
		c.among = append(c.among, d.adapter)
	}
	s := &n.streams
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

// MendExchanges undoes all calls of CutExchanges. Silent streams continue, unless they have
// failed meanwhile.
func (n *Network) MendExchanges() {
	s := &n.streams
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
func (s *streams) cut(at [2]*adapter) (how Loss, cut bool) {
	for _, c := range s.cuts {
		if c.covers(at) {
			return c.how, true
		}
	}
	return 0, false
}

// Listener accepts streams. It implements net.Listener.
type Listener struct {
	streams *streams
	addr    Addr
	at      *adapter
	queue   chan *Stream
	done    chan struct{}
}

// Listen listens on an address, "host:port"; port 0 chooses one. A host that is empty or
// unspecified, as in ":1" and "0.0.0.0:1", stands for all hosts.
func (n *Network) Listen(addr string) (net.Listener, error) { return n.listen(addr, nil) }

func (n *Network) listen(addr string, at *adapter) (net.Listener, error) {
	failed := func(err error) error {
		return &net.OpError{Op: "listen", Net: rc.InProcess, Addr: Addr(addr), Err: err}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, failed(err)
	}
	s := &n.streams
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
func (s *streams) choose() int {
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
func (s *streams) numeric(addr string) string {
	if host, port, _ := net.SplitHostPort(addr); s.hosts && host == "localhost" {
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

// DialContext connects to a listener. It returns ECONNREFUSED if the address has no listener.
func (n *Network) DialContext(ctx context.Context, addr string) (net.Conn, error) {
	return n.dial(ctx, addr, nil)
}

func (n *Network) dial(ctx context.Context, addr string, from *adapter) (net.Conn, error) {
	for {
		c, again, err := n.streams.dial(&n.opt, addr, from)
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
func (s *streams) dial(opt *options, addr string, from *adapter) (_ net.Conn, again <-chan struct{}, err error) {
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
	at := [2]*adapter{from, l.at}
	if how, cut := s.cut(at); cut {
		if how == Reset {
			return nil, nil, unix.EHOSTUNREACH
		}
		return nil, s.mended, nil
	}
	host := "memory"
	if dialled, _, _ := net.SplitHostPort(addr); s.hosts && (dialled == "" || loopback(addr)) {
		host = "127.0.0.1" // as with TCP
	} else if from != nil {
		host = (&Device{adapter: from}).GID().String()
	}
	local := Addr(net.JoinHostPort(host, fmt.Sprint(s.choose())))
	if s.hosts && strings.HasPrefix(addr, ":") {
		addr = host + addr
	}
	p := newStreamPair(s, opt, local, Addr(addr), at)
	select {
	case l.queue <- p.ends[1]:
		s.pairs[p] = true
		return p.ends[0], nil, nil
	default:
		return nil, s.mended, nil
	}
}

// Network returns the streams of the device, nil if endpoints are to use TCP.
func (d *Device) Network() rc.Network {
	if !d.net.opt.exchanges {
		return nil
	}
	return exchange{d}
}

// exchange is a device as an rc.Network.
type exchange struct{ d *Device }

func (x exchange) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return x.d.net.dial(ctx, addr, x.d.adapter)
}

func (x exchange) Listen(addr string) (net.Listener, error) {
	return x.d.net.listen(addr, x.d.adapter)
}
