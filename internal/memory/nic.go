// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// NIC is an opened RDMA device with a protection domain. Buffers are registered and endpoints
// are made with it. Its methods may be called from several goroutines at once.
type NIC struct {
	dev rc.Device
	opt NICOptions

	staged   atomic.Int64
	readBack *readBack

	mu     sync.Mutex
	closed bool
	users  int // buffers and endpoints
	pinned int64
	kept   []func() error // functions to call again
	ending int            // goroutines that end something
	idle   sync.Cond      // signals that ending is 0
}

// NICOptions tune a NIC. The zero value is usable.
type NICOptions struct {
	// MaxPinned bounds the host memory that is pinned for the NIC, in bytes: AllocHost, staging
	// and inject. 0 stands for 256 MiB. Calls that would exceed it return [failure.ErrLimit].
	MaxPinned int64
	// Event, if not nil, is called with the device's asynchronous events, one after the other,
	// on a goroutine of the NIC: for example, a port went down, or a GID changed. The NIC
	// handles events that end connections by itself. Event must return soon, and must not close
	// the NIC, whose Close waits for it. If the events are not available (EMFILE), it is never
	// called.
	Event func(ibvfd.Event)
}

const defaultMaxPinned = 256 << 20

// Stats are a NIC's counters.
type Stats struct {
	Pinned int64 // bytes of host memory that are pinned now
	// Staged counts the bytes copied so far between buffers and their staging buffers, or the
	// host memory into which a message of too many pieces is packed. It stays 0 while all
	// buffers are direct and no message is packed; DirectOnly guarantees both.
	Staged int64
}

// OpenNIC opens the RDMA device of that name ("mlx5_0", "rxe0"), like ibvfd.Open.
func OpenNIC(name string, opt NICOptions) (*NIC, error) {
	dev, err := rc.Open(name, opt.Event)
	if err != nil {
		return nil, err
	}
	return NewNIC(dev, opt), nil
}

// NewNIC makes a NIC of an opened device, which it takes over.
func NewNIC(dev rc.Device, opt NICOptions) *NIC {
	if opt.MaxPinned == 0 {
		opt.MaxPinned = defaultMaxPinned
	}
	n := &NIC{dev: dev, opt: opt}
	n.idle.L = &n.mu
	n.readBack = &readBack{nic: n, gate: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	return n
}

// Name returns the device's name: "rxe0".
func (n *NIC) Name() string { return n.dev.Name() }

// Stats returns the current counters.
func (n *NIC) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Stats{Pinned: n.pinned, Staged: n.staged.Load()}
}

// NeedAtomics refuses an operation if the NIC has no atomics: otherwise the operation would put
// the queue pair into the error state.
func (n *NIC) NeedAtomics(what string) error {
	if n.dev.Atomics() {
		return nil
	}
	return &failure.Error{
		Op: what, Device: n.Name(), Detail: "the NIC has no atomics", Err: unix.EOPNOTSUPP,
		Remedy: "use reads, writes and messages, or a NIC whose atomic_cap is not ATOMIC_NONE (ibv_devinfo -v)",
	}
}

// CountStaged counts bytes that were copied for an operation, for Stats.Staged.
func (n *NIC) CountStaged(bytes int64) { n.staged.Add(bytes) }

// Device returns the device.
func (n *NIC) Device() rc.Device { return n.dev }

// SetMaxPinned changes NICOptions.MaxPinned.
func (n *NIC) SetMaxPinned(bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opt.MaxPinned = bytes
}

// opened is a device of this machine.
type opened interface{ Context() *ibvfd.Context }

// NeedPKey returns an error unless a port has a partition; port 0 stands for any.
func (n *NIC) NeedPKey(port int, key ibdev.PKey) error {
	d, ok := n.dev.(opened)
	if !ok {
		return &failure.Error{Op: "find the P_Key", Device: n.Name(), Detail: "the NIC has none", Err: unix.EOPNOTSUPP}
	}
	if port != 0 {
		_, err := d.Context().PKeyIndex(port, key)
		return err
	}
	attr, err := d.Context().QueryDevice()
	if err != nil {
		return err
	}
	var all error
	for port := 1; port <= attr.Ports; port++ {
		_, err := d.Context().PKeyIndex(port, key)
		if err == nil {
			return nil
		}
		all = errs.Join(all, err)
	}
	return all
}

// Addr returns the IP address of a port, which its GID has; port 0 stands for the first. It is not valid
// if there is none.
func (n *NIC) Addr(port int, w gid.Wish) (none netip.Addr) {
	d, ok := n.dev.(opened)
	if !ok {
		return none
	}
	g, _, err := d.Context().ChooseGID(max(port, 1), w)
	if a := g.Addr().Unmap(); err == nil && g.Type == ibdev.GIDRoCEv2 && a.IsGlobalUnicast() {
		return a
	}
	return none
}

// Enter counts a buffer or an endpoint.
func (n *NIC) Enter() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errs.Closed("NIC " + n.dev.Name())
	}
	n.users++
	return nil
}

// Leave uncounts a buffer or an endpoint.
func (n *NIC) Leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.users--
}

// Pin reserves host memory that will be pinned.
func (n *NIC) Pin(size int64, what string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if size > n.opt.MaxPinned-n.pinned {
		return &failure.Error{
			Op: "pin host memory", Device: n.dev.Name(), Err: ErrPinned,
			Detail: fmt.Sprintf("%s for %s; %s of %s are pinned", bytesize.Format(size), what, bytesize.Format(n.pinned), bytesize.Format(n.opt.MaxPinned)),
			Remedy: "raise the limit (Fabric.SetMaxPinned; in package fi DomainOptions.MaxPinned), or close buffers and connections",
		}
	}
	n.pinned += size
	return nil
}

// ErrPinned means that NICOptions.MaxPinned would be exceeded. It is failure.ErrLimit.
var ErrPinned = fmt.Errorf("%w of pinned memory", failure.ErrLimit)

// ErrTooLong (EMSGSIZE) means that a message, or the data of an inject, has more bytes than it may
// have. It is failure.ErrLimit.
var ErrTooLong error = tooLong{}

type tooLong struct{}

func (tooLong) Error() string        { return "over the limit (EMSGSIZE)" }
func (tooLong) Is(target error) bool { return target == failure.ErrLimit }
func (tooLong) Unwrap() error        { return unix.EMSGSIZE }

// Unpin gives host memory back.
func (n *NIC) Unpin(size int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pinned -= size
}

// End calls a function. If it returns an error, Close calls it again.
func (n *NIC) End(what func() error) error {
	err := what()
	if err != nil {
		n.Keep(what)
	}
	return err
}

// later is End in a goroutine, for which Close waits.
func (n *NIC) later(what func() error) {
	n.mu.Lock()
	n.ending++
	n.mu.Unlock()
	go func() {
		_ = n.End(what)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.ending--
		n.idle.Broadcast()
	}()
}

// Keep makes Close call a function.
func (n *NIC) Keep(what func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, what)
}

// endKept calls the functions again that returned an error.
func (n *NIC) endKept() (err error) {
	n.mu.Lock()
	list := n.kept
	n.kept = nil
	n.mu.Unlock()
	for _, what := range list {
		err = errs.Join(err, n.End(what))
	}
	return err
}

// Close closes the device. While buffers or endpoints of it are open it returns [failure.ErrInUse]
// and closes nothing; a second Close does nothing. Close first tries again to free memory and
// connections that could not be freed before.
func (n *NIC) Close() error {
	err := n.close()
	n.mu.Lock()
	closed := n.closed
	n.mu.Unlock()
	if closed {
		n.dev.Ended() // NICOptions.Event may need n.mu
	}
	return err
}

// idleWait bounds how long CloseIdle waits for calls of other goroutines that use a buffer, such as
// a write that is being refused.
const idleWait = 5 * time.Second

// CloseIdle is Close of a NIC whose buffers are closed, once no call uses them any more.
func (n *NIC) CloseIdle() error {
	for end := time.Now().Add(idleWait); ; time.Sleep(time.Millisecond) {
		if err := n.Close(); !errors.Is(err, failure.ErrInUse) || time.Now().After(end) {
			return err
		}
	}
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
		return errs.Join(refused, &failure.Error{
			Op: "close", Device: n.dev.Name(), Err: failure.ErrInUse,
			Detail: fmt.Sprintf("buffers and endpoints that are open: %d", n.users),
			Remedy: "close them first",
		})
	}
	if err := n.readBack.close(); err != nil {
		return errs.Join(refused, err)
	}
	if err := n.dev.Close(); err != nil {
		return errs.Join(refused, err)
	}
	n.closed = true
	return refused
}
