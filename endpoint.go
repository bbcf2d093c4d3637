// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// Endpoint has connections to peers, and moves bytes. Its methods may be called
// from several goroutines at once.
type Endpoint struct {
	nic   *NIC
	opt   EndpointOptions
	token uint64 // names the endpoint to peers

	life     context.Context // ends with Close
	end      context.CancelFunc
	tasks    sync.WaitGroup // goroutines
	accepted chan Peer

	mu        sync.Mutex
	closed    bool
	peers     []*peer
	listeners []net.Listener
	done      []Completion
	free      []*op
	slab      *slab
	shares    map[*RemoteBuffer]*share
	wc        []ibvfd.WC
}

// EndpointOptions tune an endpoint. A zero field takes the default.
type EndpointOptions struct {
	Depth      int // operations to one peer that may be under way; default 256
	RecvDepth  int // receives from one peer that may be posted; default 128
	SendDepth  int // work requests in a queue pair; default 128
	MaxSGE     int // pieces of local memory in one work request; default 16, or what the device allows
	InjectSize int // bytes that an inject may have; default 256
	MaxPeers   int // connections and addresses; default 64

	// Selective makes completions only for operations with FlagCompletion, and
	// for those that fail (FI_SELECTIVE_COMPLETION).
	Selective bool
	// AutoReceive keeps that many empty receives posted for each peer, for the
	// data of writes. It is for endpoints that receive no messages: a message
	// that is not empty would not fit one.
	AutoReceive int

	// TLS protects the exchange by which connections are made. Both sides need a
	// certificate that the other accepts. Without it only loopback addresses are
	// allowed, unless AllowPlaintext.
	TLS *tls.Config
	// AllowPlaintext lets the exchange go in the clear: whoever can read or
	// change it can read and write the shared memory.
	AllowPlaintext bool

	// ConnectTimeout bounds an exchange; default 10 s.
	ConnectTimeout time.Duration
	// Connect tunes the queue pairs. By default a peer that has posted no
	// receive is waited for about half a second (RNRRetry 6, MinRNRTimer 26),
	// and one that does not answer about four (Timeout 17, RetryCount 6).
	Connect ibvfd.ConnectAttr
}

func (o *EndpointOptions) setDefaults() error {
	for _, d := range []struct {
		name string
		v    *int
		def  int
		max  int
	}{
		{"Depth", &o.Depth, 256, 1 << 20}, {"RecvDepth", &o.RecvDepth, 128, 1 << 20}, {"SendDepth", &o.SendDepth, 128, 1 << 20},
		{"MaxSGE", &o.MaxSGE, 16, 1 << 12}, {"InjectSize", &o.InjectSize, 256, 1 << 20}, {"MaxPeers", &o.MaxPeers, 64, 1 << 16},
		{"AutoReceive", &o.AutoReceive, 0, 1 << 20},
	} {
		if *d.v < 0 || *d.v > d.max {
			return &dmabuf.Error{Op: "make an endpoint", Detail: fmt.Sprintf("%s %d", d.name, *d.v), Remedy: fmt.Sprintf("0 to %d", d.max), Err: dmabuf.ErrRange}
		}
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	o.RecvDepth = max(o.RecvDepth, o.AutoReceive)
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 10 * time.Second
	}
	if o.Connect.RNRRetry == 0 {
		o.Connect.RNRRetry = 6 // 7 is for ever
	}
	if o.Connect.MinRNRTimer == 0 {
		o.Connect.MinRNRTimer = 26 // 81.92 ms: table 45 of the InfiniBand specification
	}
	if o.Connect.Timeout == 0 {
		o.Connect.Timeout = 17 // software NICs of busy machines are late at times
	}
	return nil
}

// Peer is an entry of an endpoint's address table (fi_addr_t). The zero Peer is
// none.
type Peer int

// peer is who can be talked to.
type peer struct {
	id   Peer
	addr string // where to connect on first use; "" if somebody connected
	conn *conn  // nil until the first use
}

// NewEndpoint makes an endpoint.
func (n *NIC) NewEndpoint(opt EndpointOptions) (*Endpoint, error) {
	if err := opt.setDefaults(); err != nil {
		return nil, err
	}
	if err := n.enter(); err != nil {
		return nil, err
	}
	e := &Endpoint{
		nic: n, opt: opt, token: newID(), shares: map[*RemoteBuffer]*share{}, wc: make([]ibvfd.WC, 64),
		accepted: make(chan Peer, opt.MaxPeers),
	}
	e.life, e.end = context.WithCancel(context.Background())
	return e, nil
}

// Insert adds an address to the table: the TCP address that a peer's endpoint
// listens on. The connection is made when an operation first needs it, and made
// anew by the first operation after it was lost.
func (e *Endpoint) Insert(addr string) (Peer, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return 0, &dmabuf.Error{Op: "insert an address", Device: addr, Remedy: "use host:port", Err: err}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p, err := e.insert(addr)
	if err != nil {
		return 0, err
	}
	return p.id, nil
}

func (e *Endpoint) insert(addr string) (*peer, error) {
	if e.closed {
		return nil, os.ErrClosed
	}
	p := &peer{addr: addr}
	for i, old := range e.peers {
		if old == nil {
			p.id, e.peers[i] = Peer(i+1), p
			return p, nil
		}
	}
	if len(e.peers) >= e.opt.MaxPeers {
		return nil, &dmabuf.Error{
			Op: "add a peer", Device: e.nic.Name(), Detail: fmt.Sprintf("there are %d", len(e.peers)),
			Remedy: "raise EndpointOptions.MaxPeers, or Remove some", Err: dmabuf.ErrLimit,
		}
	}
	e.peers = append(e.peers, p)
	p.id = Peer(len(e.peers))
	return p, nil
}

// lookup is the table's entry.
func (e *Endpoint) lookup(id Peer) (*peer, error) {
	if e.closed {
		return nil, os.ErrClosed
	}
	if id < 1 || int(id) > len(e.peers) || e.peers[id-1] == nil {
		return nil, fmt.Errorf("peer %d: %w", id, ErrNotConnected)
	}
	return e.peers[id-1], nil
}

// Remove ends the connection to a peer, if there is one, and takes it out of
// the table. What was under way with it completes with an error.
func (e *Endpoint) Remove(id Peer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, err := e.lookup(id)
	if err != nil {
		return err
	}
	if p.conn != nil {
		p.conn.abort(fmt.Errorf("%w: removed", ErrNotConnected))
	}
	e.peers[id-1] = nil
	return nil
}

// Peers are the peers in the table.
func (e *Endpoint) Peers() []Peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []Peer
	for _, p := range e.peers {
		if p != nil {
			list = append(list, p.id)
		}
	}
	return list
}

// Completion is an operation that has ended, well or not.
type Completion struct {
	Context any // as given to the operation
	Op      Op
	Peer    Peer
	Len     int64  // bytes moved; for a receive, as many as came
	Data    uint32 // the peer's data, if Flags has FlagRemoteCQData
	Flags   Flags
	Err     error // nil, or an *OpError
}

// Poll takes up to len(dst) completions, and drives what waits in queues. 0 if
// there are none.
func (e *Endpoint) Poll(dst []Completion) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return 0, os.ErrClosed
	}
	if len(e.done) < len(dst) {
		e.progress()
	}
	n := copy(dst, e.done)
	clear(e.done[:n]) // let go of contexts
	e.done = e.done[n:]
	return n, nil
}

func (e *Endpoint) progress() {
	for _, p := range e.peers {
		if p != nil && p.conn != nil {
			p.conn.progress()
		}
	}
}

// How Wait waits: spinning for what comes at once, then with short sleeps.
const (
	waitSpin  = 200 * time.Microsecond
	waitSleep = 20 * time.Microsecond
)

// Wait polls until there is at least one completion, or ctx ends, whose error it
// then returns: what is under way goes on.
func (e *Endpoint) Wait(ctx context.Context, dst []Completion) (int, error) {
	if len(dst) == 0 {
		return 0, nil
	}
	var start time.Time
	for i := 0; ; i++ {
		n, err := e.Poll(dst)
		if n > 0 || err != nil {
			return n, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		switch {
		case i == 0:
			start = time.Now()
		case i%16 == 0 && time.Since(start) > waitSpin:
			time.Sleep(waitSleep)
		default:
			runtime.Gosched()
		}
	}
}

// Close ends all connections and lets go of all memory. What was under way is
// dropped without completions. Closing again does nothing.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.end()
	for _, p := range e.peers {
		if p != nil && p.conn != nil {
			p.conn.abort(os.ErrClosed)
		}
	}
	e.closed = true
	var err error
	for _, l := range e.listeners {
		err = joined(err, l.Close())
	}
	for _, s := range e.shares {
		err = joined(err, s.close())
	}
	e.shares, e.done = nil, nil
	if e.slab != nil {
		err = joined(err, e.slab.buf.Close())
	}
	e.mu.Unlock()
	e.tasks.Wait()
	e.nic.leave()
	return err
}
