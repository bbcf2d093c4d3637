// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memstream"
)

// Network connects devices. Its methods may be called from several goroutines at once.
type Network struct {
	opt options

	// The mutex is held while a work request is carried out, so that a function that has
	// changed the network and returned has changed it for all bytes that move later.
	mu       sync.Mutex
	idle     sync.Cond // signals that a queue pair, or a device's atomic operations, are not busy any more
	key      uint32    // the last key or queue pair number
	domain   uint32    // the last protection domain
	keys     map[uint32]*region
	pairs    map[uint32]*pair
	adapters []*adapter
	cut      map[span]bool
	mute     map[span]bool // answers of a to b are lost
	hold     map[span]bool // operations of a to b are kept in the network
	late     []*packet     // these
	landed   int           // operations that arrived late and were carried out
	dropped  int           // and those that were not
	open     int           // registrations, links and completion queues

	onPlace  func(Placement) time.Duration
	flip     func(Placement) int64
	onAtomic func(Atomic)
	placed   uint64 // the number of the last placement

	streams *memstream.Network
}

// span is two devices.
type span struct{ a, b *adapter }

// between returns two devices in the order of their indices.
func between(a, b *adapter) span {
	if a.index > b.index {
		a, b = b, a
	}
	return span{a, b}
}

type options struct {
	manual    bool
	scale     float64
	exchanges bool
	movable   bool
	streams   memstream.Options
}

// Option configures a network.
type Option func(*options)

// Manual selects manual mode.
func Manual() Option { return func(o *options) { o.manual = true } }

// TimeScale sets the factor by which the network multiplies the time of retries in live mode.
// The default is 1.
func TimeScale(factor float64) Option { return func(o *options) { o.scale = factor } }

// Movable makes devices put registrations on other memory under their keys.
func Movable() Option { return func(o *options) { o.movable = true } }

// Exchanges makes endpoints on the network's devices use its streams instead of TCP.
func Exchanges() Option { return func(o *options) { o.exchanges = true } }

// Hosts makes endpoints treat hosts as they do with TCP: only loopback addresses and localhost
// may be used without TLS. Without Hosts every address counts as one of this process.
func Hosts() Option { return func(o *options) { o.streams.Hosts = true } }

// Silence sets the time after which a stream to a machine that is lost in silence fails with
// ETIMEDOUT, unless [memstream.Stream.SetSilence] sets another. The default is 15 seconds. The time scale
// does not change it.
func Silence(d time.Duration) Option { return func(o *options) { o.streams.Silence = d } }

// StreamBuffer sets the number of bytes that a stream holds in each direction. The default is
// 64 KiB.
func StreamBuffer(size int) Option { return func(o *options) { o.streams.Buffer = max(size, 1) } }

// New makes a network without devices. A network needs no Close: the goroutines of a link end
// with the link.
func New(opts ...Option) *Network {
	n := &Network{
		opt:  options{scale: 1},
		keys: map[uint32]*region{}, pairs: map[uint32]*pair{}, cut: map[span]bool{}, mute: map[span]bool{}, hold: map[span]bool{}, key: 100,
	}
	n.idle.L = &n.mu
	for _, o := range opts {
		o(&n.opt)
	}
	n.streams = memstream.New(n.opt.streams)
	return n
}

// Open returns the number of registrations, links and completion queues that are not closed.
func (n *Network) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open
}

// Access returns what a key allows, and the number of bytes that it covers. It reports false if
// there is no such key.
func (n *Network) Access(key uint32) (access ibvfd.Access, size int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.keys[key]
	if r == nil {
		return 0, 0, false
	}
	return r.access, len(r.mem), true
}

// nextKey returns an even number that no key and no queue pair has. The next odd one is free,
// too.
func (n *Network) nextKey() uint32 {
	n.key += 2
	return n.key
}

// reaches reports whether packets go from one device to another.
func (n *Network) reaches(from, to *adapter) bool {
	return from.works() && to.works() && !n.cut[between(from, to)]
}
