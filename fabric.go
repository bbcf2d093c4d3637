// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/bridge"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rails"
	"github.com/gpurdma/gpurdma/internal/verify"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Fabric is one or more opened NICs. Its methods may be called from several goroutines at once.
type Fabric struct {
	set   *rails.Set
	alloc bridge.Alloc // in place of package gpualloc's, of memory that is a Source and an io.Closer; may be nil

	mu        sync.Mutex
	closed    bool
	done      chan struct{} // closed when Close has ended
	err       error         // of Close
	listeners map[*Listener]struct{}
	conns     map[*Conn]struct{}
	buffers   map[*Buffer]struct{}
}

// Open opens NICs by their names, as in "mlx5_0". Buffers are registered with all of them, and connections use all of
// them, unless Config.NIC names one. Close the Fabric when it is not used any more. A name without an RDMA device
// returns an error that is ibdev.ErrNoDevice (package ibvfd/ibdev).
func Open(names ...string) (*Fabric, error) {
	if len(names) == 0 {
		return nil, &failure.Error{Op: "open a fabric", Detail: "no NIC is named", Remedy: "name one of /sys/class/infiniband", Err: unix.EINVAL}
	}
	set, err := rails.Open(names, maxConns)
	return newFabric(set), err
}

// newFabric makes a fabric of NICs; nil of none.
func newFabric(set *rails.Set) *Fabric {
	if set == nil {
		return nil
	}
	return &Fabric{set: set, listeners: map[*Listener]struct{}{}, conns: map[*Conn]struct{}{}, buffers: map[*Buffer]struct{}{}}
}

func init() {
	bridge.NewFabric = func(nics []*memory.NIC, alloc bridge.Alloc) (any, error) {
		set, err := rails.NewSet(nics, maxConns)
		if err != nil {
			return nil, err
		}
		f := newFabric(set)
		f.alloc = alloc
		return f, nil
	}
}

// maxConns is the number of connections that a NIC may have. Admit bounds them sooner.
const maxConns = 1 << 16

// NICs returns the names of the NICs.
func (f *Fabric) NICs() []string {
	var names []string
	for _, n := range f.set.NICs {
		names = append(names, n.Name())
	}
	return names
}

// nic returns the NIC that a connection uses, or uses first.
func (f *Fabric) nic(name string) (*rails.NIC, error) {
	for _, n := range f.set.NICs {
		if name == "" || n.Name() == name {
			return n, nil
		}
	}
	return nil, &failure.Error{Op: "use a NIC", Device: name, Detail: "the fabric has " + strings.Join(f.NICs(), ", "), Remedy: "name one of them in Config.NIC", Err: unix.ENODEV}
}

// Listen listens for connections on a TCP address ("host:port"; port 0 chooses one), or on an address of rdma_cm
// ("rdma_cm://host:port"). Over rdma_cm a connection uses one NIC. The caller closes the Listener.
func (f *Fabric) Listen(addr string, cfg Config) (*Listener, error) {
	n, opt, err := f.options(&cfg)
	if err != nil {
		return nil, err
	}
	rl, err := f.set.Listen(n, addr, opt, cmp.Or(cfg.Backlog, defaultBacklog), cfg.rails())
	if err != nil {
		return nil, f.failed(err)
	}
	l := &Listener{fabric: f, l: rl, verify: verify.Mode(cfg.Verify)}
	if !f.add(func() { f.listeners[l] = struct{}{} }) {
		return nil, errors.Join(f.isClosed(), rl.Close())
	}
	return l, nil
}

// Dial connects to a Listener of the peer. addr has a form of Listen's. Dial takes at most Config.ConnectTimeout. It
// returns ErrRejected if the peer refuses the connection, and ErrUnsafe if the exchange would not be encrypted. The
// caller closes the Conn.
func (f *Fabric) Dial(ctx context.Context, addr string, cfg Config) (*Conn, error) {
	n, opt, err := f.options(&cfg)
	if err != nil {
		return nil, err
	}
	rc, err := f.set.Dial(ctx, n, addr, opt, cfg.rails())
	if err != nil {
		return nil, f.failed(err)
	}
	return f.newConn(rc, verify.Mode(cfg.Verify))
}

// options returns the NIC of a connection's first rail, and the configuration for it.
func (f *Fabric) options(cfg *Config) (*rails.NIC, engine.EndpointOptions, error) {
	n, err := f.nic(cfg.NIC)
	if err != nil {
		return nil, engine.EndpointOptions{}, err
	}
	opt, err := cfg.options(n)
	if cfg.PeerTimeout == 0 && (cfg.Outlive || len(f.set.NICs) > 1 && cfg.NIC == "") {
		opt.PeerTimeout = linkTimeout
	}
	return n, opt, err
}

// forget removes a connection that has nothing to report any more.
func (f *Fabric) forget(c *Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}

// add runs a function that adds something to close; if the fabric is closed, it returns false.
func (f *Fabric) add(what func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	what()
	return true
}

// isClosed returns the error of a fabric that is closed.
func (f *Fabric) isClosed() error { return errs.Closed("fabric of " + strings.Join(f.NICs(), ", ")) }

// failed is plain; if the fabric is closed, it returns the fabric's own error.
func (f *Fabric) failed(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed && errors.Is(err, os.ErrClosed) {
		return f.isClosed()
	}
	return plain(err)
}

// SetMaxPinned bounds the host memory that is pinned for each NIC, in bytes: host buffers, staging buffers, and the
// messages of connections. The default is 256 MiB. A later call that would exceed it returns ErrLimit.
func (f *Fabric) SetMaxPinned(bytes int64) {
	for _, n := range f.set.NICs {
		n.SetMaxPinned(max(bytes, 0))
	}
}

// Stats are counters since the Fabric was opened, or the Conn was made: a rate is a difference of two. An operation
// counts when it has ended. A call that was refused before it posted its operation does not count.
type Stats struct {
	Pinned  int64            // bytes of host memory that are pinned now; 0 in Stats of a Conn and in ByKind
	Conns   int              // connections that are open now; 0 in Stats of a Conn and in ByKind
	Checked uint64           // blocks of the peers' writes that this side has compared with the peers' sums (Config.Verify); 0 in ByKind
	Corrupt uint64           // blocks of Checked that differed
	Staged  int64            // bytes that the CPU has copied to and from staging buffers: for these operations; in Stats of a Fabric and of its NICs, also for Sync, ReadAt and peers
	Done    uint64           // operations of this side that were carried out, even after Cancel
	Failed  uint64           // operations of this side that have failed, or were withdrawn, wholly or in part
	Repeats uint64           // times that an operation was begun again on another link (Config.Outlive)
	Bytes   int64            // bytes of the operations in Done, without notes; an atomic has 8
	Time    time.Duration    // sum of the times of the operations in Done, from posting to completion
	Latency []uint64         // histogram of these times: Latency[i] counts those of at most 2^i microseconds that Latency[i-1] does not; the last element counts all longer ones, too
	ByKind  map[OpKind]Stats // all kinds; nil inside of ByKind
	ByNIC   map[string]Stats // all NICs of the Fabric, or of the Conn; nil inside of ByKind and ByNIC
}

// Stats returns the sum over all NICs and all connections, also those that have ended. No operation waits for it.
func (f *Fabric) Stats() Stats {
	return statsOf(f.set.Counts())
}

// statsOf returns counters, and the same by NICs.
func statsOf(all workqueue.Sum, each map[string]*workqueue.Sum) Stats {
	s := stats(&all)
	s.ByNIC = map[string]Stats{}
	for nic, sum := range each {
		s.ByNIC[nic] = stats(sum)
	}
	return s
}

// stats returns the counters of all kinds, and of each.
func stats(n *workqueue.Sum) Stats {
	of := func(k workqueue.KindCounts) Stats {
		return Stats{Staged: k.Staged, Done: k.Done(), Failed: k.Failed, Repeats: k.Repeats, Bytes: k.Bytes, Time: k.Time, Latency: k.Latency[:]}
	}
	s := of(n.Total())
	s.Pinned, s.Conns, s.Checked, s.Corrupt, s.Staged, s.ByKind = n.Pinned, n.Conns, n.Checked, n.Corrupt, max(s.Staged, n.Copied), map[OpKind]Stats{}
	for kind := OpWrite; int(kind) < len(opKinds); kind++ {
		s.ByKind[kind] = of(n.Counts[opKinds[kind]])
	}
	return s
}

// Close closes all listeners, all connections in parallel, then all buffers, and the NICs. Its error joins theirs,
// such as ErrOutcomeUnknown. It takes as long as the slowest connection's Close. A further call returns it again.
func (f *Fabric) Close() error {
	f.mu.Lock()
	if f.closed {
		done := f.done
		f.mu.Unlock()
		<-done
		return f.err
	}
	f.closed, f.done = true, make(chan struct{})
	listeners, conns, buffers := f.listeners, f.conns, f.buffers
	f.listeners, f.conns, f.buffers = nil, nil, nil // to delete from these does nothing
	f.mu.Unlock()
	defer close(f.done)
	var errs []error
	for l := range listeners {
		errs = append(errs, l.l.Close())
	}
	var all sync.WaitGroup
	ends := make(chan error, len(conns))
	for c := range conns {
		all.Go(func() { ends <- c.Close() })
	}
	all.Wait()
	for range conns {
		errs = append(errs, <-ends)
	}
	errs = append(errs, f.set.CloseEndpoints())
	for b := range buffers {
		errs = append(errs, b.Close())
	}
	f.err = errors.Join(append(errs, f.set.Close((*memory.NIC).CloseIdle))...)
	return f.err
}

// Listener accepts connections. Its methods may be called from several goroutines at once.
type Listener struct {
	fabric *Fabric
	l      *rails.Listener
	verify verify.Mode
}

// Accept waits for a connection, which the caller closes. After Close it returns ErrClosed.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	rc, err := l.l.Accept(ctx)
	if errors.Is(err, os.ErrClosed) {
		return nil, errs.Closed("listener at " + l.Addr().String())
	}
	if err != nil {
		return nil, err
	}
	return l.fabric.newConn(rc, l.verify)
}

// Addr returns the address that the Listener listens on, with the port that Listen has chosen.
func (l *Listener) Addr() net.Addr { return l.l.Addr() }

// Close stops listening, and closes the connections that Accept has not returned. Others go on, but a connection with
// Config.Outlive gets no other link without the Listener. A second Close does nothing.
func (l *Listener) Close() error {
	l.fabric.mu.Lock()
	delete(l.fabric.listeners, l)
	l.fabric.mu.Unlock()
	return l.l.Close()
}
