// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package conformance

import (
	"bytes"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// overCables returns a pair of machines, one at each end of cables, when all rails are up.
func overCables(t *testing.T, c testenv.Cables, cfg gpurdma.Config) *pair {
	b := must(gpurdma.Open(c.NICs("b")...))(t)
	t.Cleanup(func() { ok(t, b.Close()) })
	return between(t, c, cfg, b)
}

// unfencedVerbs is a NIC of this machine whose queue pairs live on after they were closed.
type unfencedVerbs struct {
	*rc.Verbs
	of *unfenced
}

func (d unfencedVerbs) Link(a rc.Attr) (rc.Link, error) { return d.of.wrap(d.Verbs.Link(a)) }

// between connects a machine at one end of the cables to that at the other.
func between(t *testing.T, c testenv.Cables, cfg gpurdma.Config, b *gpurdma.Fabric) *pair {
	p := &pair{t: t, a: must(gpurdma.Open(c.NICs("a")...))(t), b: b}
	t.Cleanup(func() { ok(t, p.a.Close()) })
	p.ln = must(p.b.Listen("127.0.0.1:0", cfg))(t)
	p.client, p.server = p.connect(cfg)
	p.allUp(len(c))
	return p
}

// Cables are cut and mended under writes that overlap one another, notifications and messages:
// nothing is lost, carried out twice or late.
//
//testbed:kernel 7.2 6.12
func TestVMRailsFailOver(t *testing.T) {
	testenv.VM(t)
	noGoroutines(t)
	c := testenv.NewCables(t, 2)
	p := overCables(t, c, gpurdma.Config{PeerTimeout: bound})
	for _, r := range p.client.Rails() {
		t.Log(r)
	}
	p.overlaps(1<<20, 300<<10, nil, func(round int) bool { return round < 3 })
	for i, n := range p.client.Stats().ByNIC {
		if t.Log(i, ": ", n.Bytes, " bytes"); n.Bytes == 0 {
			t.Errorf("no byte went over %s", i)
		}
	}
	flaps := testenv.Soak(4, 100)
	done := make(chan struct{})
	flap := func() {
		defer close(done)
		for i := range flaps {
			c.Down(t, i%len(c))
			time.Sleep(time.Duration(1+i%3) * time.Second)
			c.Up(t, i%len(c))
			time.Sleep(2 * time.Second)
		}
	}
	defer func() { <-done }()
	p.overlaps(1<<20, 300<<10, func() { go flap() }, func(int) bool {
		select {
		case <-done:
			return false
		default:
			return true
		}
	})
	p.allUp(len(c))
	lost := 0
	for _, r := range p.client.Rails() {
		t.Log(r, r.Lost)
		lost += r.Lost
	}
	if lost < flaps {
		t.Errorf("%d links were lost", lost)
	}
}

// Cables are cut and mended under random operations of two connections over four NICs.
//
//testbed:kernel 7.2 6.12
func TestVMRailsRandom(t *testing.T) {
	testenv.VM(t)
	noGoroutines(t)
	c := testenv.NewCables(t, 4)
	cfg := gpurdma.Config{PeerTimeout: bound}
	p := overCables(t, c, cfg)
	r := testenv.Seeded(t)
	p.underFlaps(cfg, len(c), testenv.Soak(3, 100), func() func() {
		i := r.IntN(len(c))
		c.Down(t, i)
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		return func() {
			c.Up(t, i)
			time.Sleep(time.Duration(1000+r.IntN(2000)) * time.Millisecond)
		}
	})
}

// Rails that are not equally fast share a transfer, and a rail whose cable is cut leaves its share to the
// others. Only the soak holds each rail to the rate of its cable: on a busy machine the processors limit
// the rails, not the cables.
//
//testbed:kernel 7.2 6.12
func TestVMRailsShare(t *testing.T) {
	testenv.VM(t)
	noGoroutines(t)
	rates := []int{4 << 20, 4 << 20, 2 << 20, 1 << 20}
	c := testenv.NewCables(t, len(rates))
	for i, rate := range rates {
		c.Shape(t, i, rate)
	}
	p := overCables(t, c, gpurdma.Config{PeerTimeout: bound})
	const size = 16 << 20
	r := testenv.Seeded(t)
	mine, theirs, remote := p.both(size)
	for _, dead := range []int{-1, 0} {
		if dead >= 0 {
			c.Down(t, dead)
		}
		want := fill(t, r, mine)
		before, began := p.client.Stats().ByNIC, time.Now()
		ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify([]byte("n"))))
		took := time.Since(began).Seconds()
		must(p.server.ReceiveNotification(limited(t)))(t)
		same(t, "written", theirs, want)
		sum := 0
		for i, rate := range rates {
			if i != dead {
				sum += rate
			}
		}
		t.Logf("without rail %d: %.1f MiB/s, %.2f of the sum of the rates", dead, size/took/(1<<20), size/took/float64(sum))
		for i, nic := range c.NICs("a") {
			n := p.client.Stats().ByNIC[nic].Bytes - before[nic].Bytes
			share := float64(n) / size * float64(sum) / float64(rates[i])
			t.Logf("%s: %d bytes, %.2f of its share", nic, n, share)
			if (n == 0) != (i == dead) || testenv.Soaking() && i != dead && (share < 0.5 || share > 2) {
				t.Errorf("%s has carried %d bytes", nic, n)
			}
		}
	}
	c.Up(t, 0)
	p.allUp(len(c))
}

// A write that a network keeps while another rail takes over does not land any more, over newer bytes.
//
//testbed:kernel 7.2 6.12
func TestVMRailsLatePacket(t *testing.T) {
	testenv.VM(t)
	noGoroutines(t)
	l := newLateWrite(t, nil)
	late, want := 0, testenv.Soak(5, 100)
	for tries := 0; late < want; tries++ {
		if tries > 2*want {
			t.Fatalf("the packets were late %d times of %d", late, tries)
		}
		wasLate, arrive := l.try()
		if wasLate {
			late++
		}
		arrive()
		l.p.allUp(len(l.c)) // packets of the next link have passed those that were kept
		same(t, "after the packets that were kept", l.theirs, l.after)
	}
}

// The write of TestVMRailsLatePacket lands over newer bytes if the peer's queue pairs live on.
//
//testbed:kernel 7.2 6.12
func TestVMRailsLatePacketUnfenced(t *testing.T) {
	testenv.VM(t)
	noGoroutines(t)
	u := &unfenced{}
	l := newLateWrite(t, u)
	for tries := 0; ; tries++ {
		if tries > 3 {
			t.Fatal("the packets are never late")
		}
		u.begin()
		wasLate, arrive := l.try()
		arrive()
		if wasLate {
			for ctx := limited(t); ; time.Sleep(10 * time.Millisecond) {
				if got := content(t, l.theirs); bytes.Equal(got, l.before) {
					break
				}
				if ctx.Err() != nil {
					t.Fatal("the late packets have not landed: this test does not show what it is for that queue pairs are destroyed first")
				}
			}
		}
		ok(t, u.end())
		l.p.allUp(len(l.c))
		if wasLate {
			return
		}
	}
}

// lateWrite writes over two cables, of which one keeps its packets.
type lateWrite struct {
	t             *testing.T
	c             testenv.Cables
	p             *pair
	mine, theirs  *gpurdma.Buffer
	remote        gpurdma.Remote
	before, after []byte
}

// newLateWrite connects two machines. If u is not nil, the NICs of the one that is called are such.
func newLateWrite(t *testing.T, u *unfenced) *lateWrite {
	l := &lateWrite{t: t, c: testenv.NewCables(t, 2)}
	cfg := gpurdma.Config{PeerTimeout: 2 * time.Second}
	if u == nil {
		l.p = overCables(t, l.c, cfg)
	} else {
		var devices []rc.Device
		for _, name := range l.c.NICs("b") {
			devices = append(devices, unfencedVerbs{must(rc.Open(name, nil))(t).(*rc.Verbs), u})
		}
		l.p = between(t, l.c, cfg, u.open(t, devices...))
	}
	const size = 4096
	l.mine, l.theirs = host(t, l.p.a, 2*size), host(t, l.p.b, size)
	l.remote = l.p.export(l.theirs.All(), gpurdma.WriteOnly) // it cannot be read back: writes go over one rail
	l.before, l.after = bytes.Repeat([]byte("1"), size), bytes.Repeat([]byte("2"), size)
	put(t, l.mine, slices.Concat(l.before, l.after))
	return l
}

// try writes over a cable that keeps what goes over it, so that the other carries it out, and then
// newer bytes. It reports whether these were written before the first packet was delivered. arrive
// waits until all are, and mends the cable.
func (l *lateWrite) try() (late bool, arrive func()) {
	t, p, c := l.t, l.p, l.c
	size := int64(len(l.before))
	was := p.client.Stats().ByNIC
	ok(t, p.client.Write(limited(t), l.remote, l.mine.Range(0, size)))
	home := slices.IndexFunc(c.NICs("a"), func(nic string) bool { return p.client.Stats().ByNIC[nic].Bytes > was[nic].Bytes })
	packets, release := c.Hold(t, home, testenv.Limit(6*time.Second))
	ok(t, p.client.Write(limited(t), l.remote, l.mine.Range(0, size)))
	delivered, kept := packets()
	if kept == 0 {
		t.Fatalf("the network has delivered %d packets, and keeps none", delivered)
	}
	ok(t, p.client.Write(limited(t), l.remote, l.mine.Range(size, size), gpurdma.Notify(nil)))
	must(p.server.ReceiveNotification(limited(t)))(t)
	same(t, "written", l.theirs, l.after)
	delivered, _ = packets()
	if late = delivered == 0; !late { // the machine is busy, and the newer bytes came too late
		t.Logf("the network has delivered %d packets before the newer bytes, and keeps %d", delivered, kept)
	}
	return late, func() {
		for ctx := limited(t); delivered < kept; time.Sleep(10 * time.Millisecond) {
			ok(t, ctx.Err())
			delivered, _ = packets()
		}
		release()
	}
}

// A program that calls the peer by the address of a NIC goes on when that NIC's cable is cut: the
// exchanges of the other rails go between the addresses of their own NICs.
//
//testbed:kernel 7.2 6.12
func TestVMRailsOwnWays(t *testing.T) {
	testenv.VM(t)
	noGoroutines(t)
	c := testenv.NewCables(t, 3)
	p := &pair{t: t, a: must(gpurdma.Open(c.NICs("a")...))(t), b: must(gpurdma.Open(c.NICs("b")...))(t)}
	t.Cleanup(func() { ok(t, p.a.Close()); ok(t, p.b.Close()) })
	cfg := gpurdma.Config{PeerTimeout: bound, AllowPlaintext: true}
	p.ln = must(p.b.Listen(":0", cfg))(t)
	_, port, err := net.SplitHostPort(p.ln.Addr().String())
	ok(t, err)
	_, first := c.Addrs(0)
	p.client = must(p.a.Dial(limited(t), net.JoinHostPort(first, port), cfg))(t)
	p.server = must(p.ln.Accept(limited(t)))(t)
	p.allUp(len(c))
	for i := range c {
		a, b := c.Addrs(i)
		if n := connections(t, b, port); n != 1 {
			t.Errorf("%d exchanges go to %s", n, b)
		}
		if n := connections(t, a, ""); i > 0 && n != 1 {
			t.Errorf("%d exchanges come from %s", n, a)
		}
	}
	mine, theirs, remote := p.both(1 << 20)
	r := testenv.Seeded(t)
	for i := range c {
		c.Down(t, i)
		c.DownEnd(t, i, "b") // the address is that of no NIC of this host now: packets to it go nowhere
		for start, n := time.Now(), 0; n < 5 || time.Since(start) < 3*time.Second; n++ {
			want := fill(t, r, mine)
			ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify([]byte("n"))))
			must(p.server.ReceiveNotification(limited(t)))(t)
			same(t, "written", theirs, want)
		}
		rails := p.client.Rails()
		for k, rail := range rails {
			if (k != i) != rail.Up {
				t.Errorf("with cable %d cut: %v", i, rails)
			}
		}
		c.Up(t, i)
		p.allUp(len(c))
	}
	for _, rail := range p.client.Rails() {
		if rail.Lost != 1 {
			t.Errorf("%v has lost %d links", rail, rail.Lost)
		}
	}
}

// A NIC of either side is removed under writes, one after the other, until one rail is left. A write has
// written its bytes, or its outcome is unknown.
//
//testbed:kernel 7.3
func TestVMRailsNICsRemoved(t *testing.T) {
	testenv.VM(t)
	noGoroutines(t)
	c := testenv.NewCables(t, 3)
	p := overCables(t, c, gpurdma.Config{PeerTimeout: bound})
	p.overRemovals(1, func() { c.Remove(t, 1, "a") }, func() { c.Remove(t, 2, "b") })
}

// connections returns the number of TCP connections that an address of this host has, at a port if that
// is not empty.
func connections(t testing.TB, addr, port string) int {
	t.Helper()
	args := []string{"-Htn", "state", "established", "src", addr}
	if port != "" {
		args = append(args, "sport", "=", ":"+port)
	}
	out, err := exec.Command("ss", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ss: %v: %s", err, out)
	}
	return strings.Count(string(out), "\n")
}
