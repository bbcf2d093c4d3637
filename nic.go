// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/bytesize"
)

// NIC is an opened RDMA device with a protection domain, in which buffers are
// registered and endpoints made. Its methods may be called from several
// goroutines at once.
type NIC struct {
	dev device
	opt NICOptions

	staged   atomic.Int64
	readBack *readBack

	mu     sync.Mutex
	closed bool
	users  int // buffers and endpoints
	pinned int64
	kept   []func() error // ends what could not be ended
	ending int            // goroutines that end something
	idle   sync.Cond      // there are none
}

// NICOptions tune a NIC. The zero value is good.
type NICOptions struct {
	// MaxPinned bounds the host memory that is pinned for the NIC, in bytes:
	// AllocHost, staging and inject. 0 stands for 256 MiB. What would exceed it
	// answers [dmabuf.ErrLimit].
	MaxPinned int64
	// Event, if not nil, is called with the device's asynchronous events, one after
	// the other, on a goroutine of the NIC's: a port went down, or a GID changed.
	// The NIC acts on those that end connections by itself. It must return soon,
	// and must not close the NIC, whose Close waits for it. If the events cannot be
	// had (EMFILE), it is never called.
	Event func(ibvfd.Event)
}

const defaultMaxPinned = 256 << 20

// Stats are a NIC's counts.
type Stats struct {
	Pinned int64 // bytes of host memory that are pinned now
	// Staged are the bytes copied so far between buffers and the host memory that stands
	// in for them, or that a message of too many pieces is packed into: 0 while all are
	// direct and no message is packed, which DirectOnly sees to.
	Staged int64
}

// OpenNIC opens the RDMA device of that name ("mlx5_0", "rxe0") as ibvfd.Open
// does.
func OpenNIC(name string, opt NICOptions) (*NIC, error) {
	dev, err := openDevice(name, opt.Event)
	if err != nil {
		return nil, err
	}
	return newNIC(dev, opt), nil
}

func newNIC(dev device, opt NICOptions) *NIC {
	if opt.MaxPinned == 0 {
		opt.MaxPinned = defaultMaxPinned
	}
	n := &NIC{dev: dev, opt: opt}
	n.idle.L = &n.mu
	n.readBack = &readBack{nic: n, gate: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	return n
}

// Name is the device's name: "rxe0".
func (n *NIC) Name() string { return n.dev.name() }

// Stats are the counts as of now.
func (n *NIC) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Stats{Pinned: n.pinned, Staged: n.staged.Load()}
}

// atomics refuses what takes a NIC with atomics: on one without, the queue pair
// would end in an error.
func (n *NIC) atomics(what string) error {
	if n.dev.atomics() {
		return nil
	}
	return &dmabuf.Error{
		Op: what, Device: n.Name(), Detail: "the NIC has no atomics", Err: unix.EOPNOTSUPP,
		Remedy: "use reads, writes and messages, or a NIC whose atomic_cap is not ATOMIC_NONE (ibv_devinfo -v)",
	}
}

// enter counts a buffer or an endpoint; leave uncounts it.
func (n *NIC) enter() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return os.ErrClosed
	}
	n.users++
	return nil
}

func (n *NIC) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.users--
}

// pin reserves host memory that is going to be pinned; unpin gives it back.
func (n *NIC) pin(size int64, what string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if size > n.opt.MaxPinned-n.pinned {
		return &dmabuf.Error{
			Op: "pin host memory", Device: n.dev.name(), Err: dmabuf.ErrLimit,
			Detail: fmt.Sprintf("%s for %s; %s of %s are pinned", bytesize.Format(size), what, bytesize.Format(n.pinned), bytesize.Format(n.opt.MaxPinned)),
			Remedy: "raise NICOptions.MaxPinned, or close buffers",
		}
	}
	n.pinned += size
	return nil
}

func (n *NIC) unpin(size int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pinned -= size
}

// end ends something, or has Close try again.
func (n *NIC) end(what func() error) error {
	err := what()
	if err != nil {
		n.keep(what)
	}
	return err
}

// later is end in a goroutine, for which Close waits.
func (n *NIC) later(what func() error) {
	n.mu.Lock()
	n.ending++
	n.mu.Unlock()
	go func() {
		_ = n.end(what)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.ending--
		n.idle.Broadcast()
	}()
}

func (n *NIC) keep(what func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, what)
}

// endKept tries again to end what could not be ended.
func (n *NIC) endKept() (err error) {
	n.mu.Lock()
	list := n.kept
	n.kept = nil
	n.mu.Unlock()
	for _, what := range list {
		err = joined(err, n.end(what))
	}
	return err
}

// Close closes the device. While buffers or endpoints of it are open it answers
// [dmabuf.ErrInUse] and closes nothing; closing again does nothing. What could
// not be freed when it should have been is tried again first: memory that was
// released, connections that ended.
func (n *NIC) Close() error {
	err := n.close()
	n.mu.Lock()
	closed := n.closed
	n.mu.Unlock()
	if closed {
		n.dev.ended() // what NICOptions.Event does may want n.mu
	}
	return err
}

func (n *NIC) close() error {
	n.mu.Lock()
	for n.ending > 0 {
		n.idle.Wait()
	}
	n.mu.Unlock()
	refused := n.endKept()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	if n.users > 0 {
		return joined(refused, &dmabuf.Error{
			Op: "close", Device: n.dev.name(), Err: dmabuf.ErrInUse,
			Detail: fmt.Sprintf("buffers and endpoints still open: %d", n.users),
			Remedy: "close them first",
		})
	}
	if err := n.readBack.close(); err != nil {
		return joined(refused, err)
	}
	if err := n.dev.close(); err != nil {
		return joined(refused, err)
	}
	n.closed = true
	return refused
}
