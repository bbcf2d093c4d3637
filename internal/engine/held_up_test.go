// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/workqueue"
	"github.com/gpurdma/gpurdma/layout"
)

// gate blocks goroutines that pass it, until it is opened.
type gate struct {
	reached chan struct{} // gets a value for each goroutine that arrives
	open    chan struct{}
	once    sync.Once
}

func newGate() *gate { return &gate{reached: make(chan struct{}, 1000), open: make(chan struct{})} }

func (g *gate) pass() {
	if g == nil {
		return
	}
	g.reached <- struct{}{}
	<-g.open
}

func (g *gate) lift() { g.once.Do(func() { close(g.open) }) }

// slowSource is memory whose copies wait at gates.
type slowSource struct {
	memSource
	mu        sync.Mutex
	out, into *gate
}

func (s *slowSource) gates() (out, into *gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out, s.into
}

func (s *slowSource) set(out, into *gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out, s.into = out, into
}

func (s *slowSource) ReadAt(p []byte, off int64) (int, error) {
	out, _ := s.gates()
	out.pass()
	return s.memSource.ReadAt(p, off)
}

func (s *slowSource) WriteAt(p []byte, off int64) (int, error) {
	_, into := s.gates()
	into.pass()
	return s.memSource.WriteAt(p, off)
}

// slowDevice is a device whose registrations, and their ends, wait at gates.
type slowDevice struct {
	*fakeDevice
	mu        sync.Mutex
	make, end *gate
	mute      bool // links that do not flush
}

func (d *slowDevice) gates() (make, end *gate, mute bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.make, d.end, d.mute
}

func (d *slowDevice) set(make, end *gate, mute bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.make, d.end, d.mute = make, end, mute
}

func (d *slowDevice) Host(mem *hostmem.Buf, off, n int64, access ibvfd.Access) (*rc.Registration, error) {
	make, _, _ := d.gates()
	make.pass()
	r, err := d.fakeDevice.Host(mem, off, n, access)
	if err != nil {
		return nil, err
	}
	end := r.Close
	r.Close = func() error {
		_, slow, _ := d.gates()
		slow.pass()
		return end()
	}
	return r, nil
}

func (d *slowDevice) Link(a rc.Attr) (rc.Link, error) {
	l, err := d.fakeDevice.Link(a)
	if err != nil {
		return nil, err
	}
	return &muteLink{l.(*fakeLink), d}, nil
}

// muteLink does not flush while its device is mute.
type muteLink struct {
	*fakeLink
	d *slowDevice
}

func (l *muteLink) Fail() error {
	if _, _, mute := l.d.gates(); mute {
		return nil
	}
	return l.fakeLink.Fail()
}

// threesome is an endpoint on a slow device with two peers, each of which shares memory with
// it.
type threesome struct {
	*world
	dev   *slowDevice
	other operation.Peer
	there *memory.RemoteBuffer // of the other peer
	mine  *memory.Buffer
}

func newThreesome(t *testing.T, opt EndpointOptions) *threesome {
	s := inMemory(t)
	x := &threesome{world: s.world(t, opt)}
	x.dev = &slowDevice{fakeDevice: fakeOf(x.a.nic)}
	replaceDevice(x.a.nic, x.dev)
	server := s.endpoint(t, opt)
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	x.other = must(x.a.Connect(limited(t), addr))(t)
	id := must(server.Accept(limited(t)))(t)
	rb := must(server.Share(id, hostKind.make(t, server.nic, 64).All(), allAccess))(t)
	x.ok(server.Offer(limited(t), id, rb))
	x.there = must(x.a.Offered(limited(t), x.other))(t)
	x.mine = hostKind.make(t, x.a.nic, 64)
	return x
}

// goesOn checks that the endpoint works with the other peer while another operation is
// blocked.
func (x *threesome) goesOn(what string) {
	x.t.Helper()
	x.ok(x.a.Write(x.mine.All(), x.other, x.there.All(), what))
	x.done(x.a, operation.Write, what)
	if _, err := x.a.Poll(nil); err != nil {
		x.t.Error(err)
	}
	if n := len(x.a.Peers()); n == 0 {
		x.t.Error("no peers")
	}
}

// Slow work of one connection delays no other connection: neither its copies of staged memory,
// nor registrations, nor its end.
func TestNothingHoldsOthersUp(t *testing.T) {
	t.Run("a copy before a write", func(t *testing.T) {
		x := newThreesome(t, EndpointOptions{})
		to := x.share(hostKind.make(t, x.b.nic, 64).All(), allAccess)
		src := &slowSource{memSource: memSource{mem: make([]byte, 64)}}
		b := must(x.a.nic.Register(src, memory.BufferOptions{}))(t)
		closingBuffer(t, b)
		g := newGate()
		defer g.lift()
		src.set(g, nil)
		x.ok(x.a.Write(b.All(), x.ab, to.All(), "staged"))
		<-g.reached
		x.goesOn("while it copies")
		x.ok(x.a.Write(x.mine.All(), x.ab, to.All(), "behind it"))
		g.lift()
		x.done(x.a, operation.Write, "staged")
		x.done(x.a, operation.Write, "behind it")
	})
	t.Run("a copy after a read", func(t *testing.T) {
		x := newThreesome(t, EndpointOptions{})
		from := x.share(hostKind.make(t, x.b.nic, 64).All(), allAccess)
		src := &slowSource{memSource: memSource{mem: make([]byte, 64)}}
		b := must(x.a.nic.Register(src, memory.BufferOptions{}))(t)
		closingBuffer(t, b)
		g := newGate()
		defer g.lift()
		src.set(nil, g)
		x.ok(x.a.Read(b.All(), x.ab, from.All(), "staged"))
		if _, err := x.a.Poll(nil); err != nil {
			t.Fatal(err)
		}
		<-g.reached
		x.goesOn("while it copies")
		g.lift()
		x.done(x.a, operation.Read, "staged")
	})
	t.Run("a registration", func(t *testing.T) {
		x := newThreesome(t, EndpointOptions{})
		b := hostKind.make(t, x.a.nic, 64)
		g := newGate()
		defer g.lift()
		x.dev.set(g, nil, false)
		var all sync.WaitGroup
		for _, p := range []operation.Peer{0, x.ab} {
			all.Go(func() {
				rb, err := x.a.Share(p, b.All(), allAccess)
				if err != nil {
					t.Error(err)
				} else if err := x.a.Unshare(rb); err != nil {
					t.Error(err)
				}
			})
			<-g.reached
			x.goesOn("while it registers")
		}
		g.lift()
		all.Wait()
	})
	t.Run("the end of a registration", func(t *testing.T) {
		x := newThreesome(t, EndpointOptions{})
		b := hostKind.make(t, x.a.nic, 64)
		x.dev.set(nil, newGate(), false)
		_, g, _ := x.dev.gates()
		defer g.lift()
		var shared []*memory.RemoteBuffer
		for range 2 {
			shared = append(shared, must(x.a.Share(x.ab, b.All(), allAccess))(t))
		}
		ended := make(chan error, 2)
		go func() { ended <- x.a.Unshare(shared[0]) }()
		<-g.reached
		x.goesOn("while Unshare ends it")
		go func() { ended <- x.a.Remove(x.ab) }()
		<-g.reached
		x.goesOn("while the connection's end does")
		g.lift()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("a message that is packed", func(t *testing.T) {
		x := newThreesome(t, EndpointOptions{})
		every := must(layout.Interleaved(layout.Extent{Len: 1}, layout.Dim{Count: 20, Stride: 2}))(t)
		x.ok(x.b.Recv(hostKind.make(t, x.b.nic, 64).All(), x.ba, nil))
		g := newGate()
		defer g.lift()
		x.dev.set(g, nil, false)
		x.ok(x.a.Send(viewOf(t, every, x.mine), x.ab, "packed"))
		<-g.reached
		x.goesOn("while it is")
		g.lift()
		x.done(x.a, operation.Send, "packed")
	})
	t.Run("a NIC that does not flush", func(t *testing.T) {
		x := newThreesome(t, EndpointOptions{})
		x.dev.set(nil, nil, true)
		addr := must(x.b.Listen("127.0.0.1:0"))(t).String()
		const n = 8
		var peers []operation.Peer
		for range n {
			p := must(x.a.Connect(limited(t), addr))(t)
			x.ok(x.a.Recv(memory.Span{}, p, nil))
			peers = append(peers, p)
		}
		began := time.Now()
		var all sync.WaitGroup
		for _, p := range peers {
			all.Go(func() {
				if err := x.a.Remove(p); err != nil {
					t.Error(err)
				}
			})
		}
		x.goesOn("while they wait for it")
		all.Wait()
		if took := time.Since(began); took > 3*workqueue.FlushWait {
			t.Errorf("%d connections that do not flush ended in %v: one after the other", n, took)
		}
		x.dev.set(nil, nil, false)
	})
}

// A connection that ends while a copy is under way waits for the copy, and so does Close: the
// memory is in use until then.
func TestEndWaitsForCopies(t *testing.T) {
	x := newThreesome(t, EndpointOptions{})
	to := x.share(hostKind.make(t, x.b.nic, 64).All(), allAccess)
	src := &slowSource{memSource: memSource{mem: make([]byte, 64)}}
	b := must(x.a.nic.Register(src, memory.BufferOptions{}))(t)
	closingBuffer(t, b)
	g := newGate()
	defer g.lift()
	src.set(g, nil)
	x.ok(x.a.Write(b.All(), x.ab, to.All(), "staged"))
	<-g.reached
	ended := make(chan error, 1)
	go func() { ended <- x.a.Close() }()
	for x.a.life.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := b.Close(); err == nil {
		t.Error("memory was freed that is being copied")
	}
	select {
	case err := <-ended:
		t.Errorf("Close did not wait: %v", err)
	default:
	}
	g.lift()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := x.a.Write(b.All(), x.ab, to.All(), nil); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// The memory of a released Buffer is freed when the last operation on it has ended, and no
// other connection waits for that.
func TestFreeingHoldsNobodyUp(t *testing.T) {
	x := newThreesome(t, EndpointOptions{})
	to := x.share(hostKind.make(t, x.b.nic, 64).All(), allAccess)
	g := newGate()
	defer g.lift()
	x.dev.set(nil, g, false)
	b := must(x.a.nic.AllocHost(64))(t)
	pinned := x.a.nic.Stats().Pinned
	x.ok(x.a.Write(b.All(), x.ab, to.All(), "last"))
	x.ok(b.Release())
	x.done(x.a, operation.Write, "last")
	<-g.reached
	x.goesOn("while it is freed")
	g.lift()
	for ctx := limited(t); x.a.nic.Stats().Pinned != pinned-64; time.Sleep(time.Millisecond) {
		x.inTime(ctx)
	}
}
