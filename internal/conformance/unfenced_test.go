// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/bridge"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// unfenced is what NICs have in common whose queue pairs live on after they were closed: until end is called, a packet
// that the network has kept lands. Tests show by it what it is for that a side destroys its queue pairs first.
type unfenced struct {
	mu    sync.Mutex
	ended bool
	links []rc.Link // that were closed
}

// begin lets queue pairs live on again.
func (u *unfenced) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = false
}

// end closes the queue pairs, and lets NICs close later ones at once.
func (u *unfenced) end() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	var all error
	for _, l := range u.links {
		all = errors.Join(all, l.Fail(), l.Close())
	}
	u.links = nil
	return all
}

// wrap is the link of such a NIC.
func (u *unfenced) wrap(l rc.Link, err error) (rc.Link, error) {
	if err != nil {
		return nil, err
	}
	return &unfencedLink{l, u}, nil
}

// unfencedLink is a link that says it is closed, and is not.
type unfencedLink struct {
	rc.Link
	of *unfenced
}

func (l *unfencedLink) Fail() error {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.of.ended {
		return l.Link.Fail()
	}
	return errors.New("the queue pairs live on")
}

func (l *unfencedLink) Close() error {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.of.ended {
		return l.Link.Close()
	}
	l.of.links = append(l.of.links, l.Link)
	return nil
}

// open makes a machine of opened devices.
func (u *unfenced) open(t *testing.T, devices ...rc.Device) *gpurdma.Fabric {
	var nics []*memory.NIC
	for _, d := range devices {
		nics = append(nics, memory.NewNIC(d, memory.NICOptions{}))
	}
	f := must(bridge.NewFabric(nics, nil))(t).(*gpurdma.Fabric)
	t.Cleanup(func() { ok(t, u.end()); ok(t, f.Close()) })
	return f
}

// unfencedInMemory is such a NIC in memory.
type unfencedInMemory struct {
	*memnic.Device
	of *unfenced
}

func (d unfencedInMemory) Link(a rc.Attr) (rc.Link, error) { return d.of.wrap(d.Device.Link(a)) }

// The write of TestRailsLatePacket lands over the newer bytes if the peer's queue pairs live on.
func TestRailsLatePacketUnfenced(t *testing.T) {
	noGoroutines(t)
	u, other := &unfenced{}, &unfenced{ended: true}
	net := memnic.New(memnic.Exchanges(), memnic.Hosts())
	names := []string{"mem0", "mem1", "mem2"}
	here, there := map[string]*memnic.Device{}, map[string]*memnic.Device{}
	var a, b []rc.Device
	for _, name := range names {
		here[name], there[name] = net.Device(name, memnic.Limits{Machine: "a"}), net.Device(name, memnic.Limits{Machine: "b"})
		a, b = append(a, here[name]), append(b, unfencedInMemory{there[name], u})
	}
	cfg := gpurdma.Config{PeerTimeout: 300 * time.Millisecond}
	p := &pair{t: t, a: other.open(t, a...), b: u.open(t, b...)}
	p.ln = must(p.b.Listen("127.0.0.1:7471", cfg))(t)
	p.client, p.server = p.connect(cfg)
	p.allUp(len(names))
	mine, theirs, remote := p.both(8)
	put(t, mine, []byte("1st try!"))
	hold := func(nic string, held bool) { net.Hold(here[nic], there[nic], held) }
	kept := func() int { n, _, _ := net.Late(); return n }
	x, held := p.keepWrite(names, hold, kept, mine, remote)
	ok(t, limitedDone(t, x))
	put(t, mine, []byte("newer..."))
	ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Delivered()))
	same(t, "written", theirs, []byte("newer..."))
	hold(held, false)
	same(t, "after the late packet", theirs, []byte("1st try!"))
	ok(t, u.end())
	p.allUp(len(names))
}
