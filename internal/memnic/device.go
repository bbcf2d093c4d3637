// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memstream"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// Limits are the limits of a device. 0 stands for the default.
type Limits struct {
	MaxSGE     int   // SGEs of a work request; default 16
	MaxSGERead int   // SGEs of a READ; 0: the device does not say, and MaxSGE holds
	Inline     int   // bytes of inline data; default 64, and a negative number stands for none
	MaxMsg     int64 // bytes of a work request; default 1 MiB
	NoAtomics  bool  // there is no fetch-and-add, and no compare-and-swap
	Machine    any   // equal for the devices of one machine, whose exchanges CutExchanges cuts together; nil: this device alone
}

func (l Limits) maxSGE() int {
	if l.MaxSGE == 0 {
		return 16
	}
	return l.MaxSGE
}

func (l Limits) inline() int {
	if l.Inline == 0 {
		return 64
	}
	return max(l.Inline, 0)
}

func (l Limits) maxMsg() int64 {
	if l.MaxMsg == 0 {
		return 1 << 20
	}
	return l.MaxMsg
}

// adapter is the state that a device shares with the devices of its other domains.
type adapter struct {
	net    *Network
	name   string
	index  int // counted from 1
	limits Limits
	host   memstream.Host // which exchanges are its own
	down   bool           // the port
	gone   error          // why the device has ended
	links  []*Link
	events func(ibvfd.Event)
	held   []*placing // in order of their numbers
	atomic bool       // an atomic operation is between its two halves

	sends, receives float64 // bytes a second of each queue pair; 0 is no limit
}

func (a *adapter) works() bool { return !a.down && a.gone == nil }

// gid returns the device's GID: an IPv4 address of 10.0.0.0/8, made of its index.
func (a *adapter) gid() [16]byte {
	ip := netip.AddrFrom4([4]byte{10, byte(a.index >> 16), byte(a.index >> 8), byte(a.index)})
	return ip.As16()
}

// Device is an RDMA device with one port, in one of its protection domains. It implements
// rc.Device.
type Device struct {
	*adapter
	domain uint32
	sub    bool // NewDomain has made it
}

// Device adds a device. Names need not differ.
func (n *Network) Device(name string, l Limits) *Device {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := &adapter{net: n, name: name, index: len(n.adapters) + 1, limits: l, host: l.Machine}
	if a.host == nil {
		a.host = a
	}
	n.adapters = append(n.adapters, a)
	n.domain++
	return &Device{adapter: a, domain: n.domain}
}

// Configure changes the limits of a device for links that are made later.
func (d *Device) Configure(change func(*Limits)) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	change(&d.limits)
}

// OnEvent sets a function that gets the device's asynchronous events.
func (d *Device) OnEvent(heard func(ibvfd.Event)) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	d.events = heard
}

// On returns the network that the device is on.
func (d *Device) On() *Network { return d.net }

// Name returns the name that the device was added with.
func (d *Device) Name() string { return d.name }

// Number returns the number of the device in its network, counted from 1.
func (d *Device) Number() int { return d.index }

// Ports returns the number of ports: 1.
func (d *Device) Ports() int { return 1 }

// GID returns the GID of the port, an IPv4 address that no other device of the network has.
func (d *Device) GID() netip.Addr { return netip.AddrFrom16(d.gid()).Unmap() }

// Atomics reports whether the device has atomic operations.
func (d *Device) Atomics() bool {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	return !d.limits.NoAtomics
}

// NewDomain returns the device with a protection domain of its own. Keys of one domain are not
// valid in another.
func (d *Device) NewDomain() (rc.Device, error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	d.net.domain++
	return &Device{adapter: d.adapter, domain: d.net.domain, sub: true}, nil
}

// Close closes the domain. It returns [failure.ErrInUse] while registrations or links of the
// domain are open. The device can be used again after it.
func (d *Device) Close() error {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	n := 0
	for key, r := range d.net.keys {
		if r.domain == d.domain && key == r.lkey {
			n++
		}
	}
	for _, l := range d.links {
		if l.domain == d.domain {
			n++
		}
	}
	if n > 0 {
		return &failure.Error{Op: "close", Device: d.name, Detail: fmt.Sprintf("registrations and links still open: %d", n), Remedy: "close them first", Err: failure.ErrInUse}
	}
	return nil
}

// Ended returns at once: a device has no goroutines of its own.
func (d *Device) Ended() {}

// QueueDepth returns depth, because completion queues have no maximum.
func (d *Device) QueueDepth(depth int) int { return depth }

// lost returns why the device makes no new objects; nil if it does.
func (a *adapter) lost() error {
	if a.gone != nil {
		return &failure.Error{Op: "use", Device: a.name, Detail: a.gone.Error(), Err: unix.EIO}
	}
	return nil
}
