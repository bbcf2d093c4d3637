// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rma"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

// An endpoint that closes frees everything, including operations under way and memory that
// peers have keys to; the other side sees the end.
func TestCloseUnderTraffic(t *testing.T) { testCloseUnderTraffic(t, inMemory(t)) }

func testCloseUnderTraffic(t *testing.T, s setting) {
	for _, k := range s.kinds {
		t.Run(k.name, func(t *testing.T) {
			w := s.world(t, EndpointOptions{})
			mine, theirs := k.make(t, w.a.nic, 10000), k.make(t, w.b.nic, 10000)
			rb := w.share(theirs.All(), allAccess)
			for range 20 {
				w.ok(w.a.Write(mine.All(), w.ab, rb.All(), nil))
				w.ok(w.a.Read(mine.All(), w.ab, rb.All(), nil))
			}
			w.ok(w.a.Recv(mine.All(), w.ab, nil))
			if err := mine.Close(); !errors.Is(err, failure.ErrInUse) {
				t.Errorf("close of a buffer under traffic: %v", err)
			}
			if err := theirs.Close(); !errors.Is(err, failure.ErrInUse) {
				t.Errorf("close of a buffer to which there is a key: %v", err)
			}
			for range 2 {
				w.ok(w.a.Close())
			}
			w.ok(mine.Close())
			w.broken(w.b, w.ba)
			w.ok(theirs.Close())
			for name, err := range map[string]error{
				"Write": w.a.Write(mine.All(), w.ab, rb.All(), nil), "Poll": second(w.a.Poll(nil)),
				"Wait": second(w.a.Wait(t.Context(), make([]operation.Completion, 1))), "Insert": second(w.a.Insert("x:1")),
				"Share": second(w.a.Share(0, mine.All(), allAccess)), "Connect": second(w.a.Connect(t.Context(), "127.0.0.1:1")),
				"Listen": second(w.a.Listen("127.0.0.1:0")), "Accept": second(w.a.Accept(t.Context())), "Remove": w.a.Remove(w.ab),
			} {
				if !errors.Is(err, os.ErrClosed) {
					t.Errorf("%s after Close: %v", name, err)
				}
			}
		})
	}
}

// Many goroutines use one endpoint, and one of them ends the connection.
func TestConcurrentUse(t *testing.T) { testConcurrentUse(t, inMemory(t), 200) }

func testConcurrentUse(t *testing.T, s setting, each int) {
	w := s.world(t, EndpointOptions{Depth: 32, AutoReceive: 8})
	mine, theirs := hostKind.make(t, w.a.nic, 4096), hostKind.make(t, w.b.nic, 4096)
	rb := w.share(theirs.All(), allAccess)
	const users = 4
	var posting, polling sync.WaitGroup
	ctx, cancel := context.WithCancel(limited(t))
	completed := make(chan int, 1)
	for _, e := range []*Endpoint{w.a, w.b} {
		polling.Go(func() {
			n := 0
			list := make([]operation.Completion, 16)
			for {
				k, err := e.Wait(ctx, list)
				if err != nil {
					break
				}
				for _, c := range list[:k] {
					if c.Op != operation.Recv { // an automatic receive reports the end
						n++
					}
					// The NIC may notice the end before the exchange does.
					if c.Err != nil && !errors.Is(c.Err, ErrNotConnected) && !errors.Is(c.Err, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
						t.Errorf("%+v", c)
					}
				}
			}
			if e == w.a {
				completed <- n
			}
		})
	}
	counts := make([]int, users)
	for u := range users {
		posting.Go(func() {
			at := int64(u) * 512
			for i := 0; i < each; {
				l, err := layout.Interleaved(layout.Extent{Off: at, Len: 64}, layout.Dim{Count: 4, Stride: 128})
				if err == nil && i%2 == 0 {
					var v *memory.View
					if v, err = memory.NewView(l, mine); err == nil {
						err = w.a.Write(memory.Span{View: v, Length: 200}, w.ab, rb.Part(at, 200), u)
					}
				} else if err == nil {
					err = w.a.ReadMsg(rma.Msg{Local: []memory.Span{{Buf: mine, Offset: at, Length: 64}}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.Part(at, 64)}}, operation.FlagFence)
				}
				switch {
				case errors.Is(err, operation.ErrQueueFull):
					runtime.Gosched() // the network in memory may need the processor
					continue
				case err != nil:
					t.Error(err)
					return
				}
				counts[u]++
				i++
			}
		})
	}
	posting.Wait()
	// The last completions: one for each operation that was posted.
	w.ok(w.b.Close())
	w.broken(w.a, w.ab)
	for w.a.Untaken() > 0 {
		runtime.Gosched()
	}
	cancel()
	polling.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	if n := <-completed; n != total {
		t.Errorf("%d completions of %d operations", n, total)
	}
}

// A view is of buffers of one NIC, and all bytes of its layout are theirs. It does not keep them.
func TestViews(t *testing.T) {
	s := inMemory(t)
	w := s.world(t, EndpointOptions{})
	n, other := w.a.nic, s.open(t, memory.NICOptions{})
	a, b := hostKind.make(t, n, 10), must(n.AllocHost(20))(t)
	elsewhere, theirs := hostKind.make(t, other, 10), hostKind.make(t, w.b.nic, 6)
	sg := func(list ...layout.Extent) layout.Layout { return must(layout.SG(list...))(t) }
	first := sg(layout.Extent{Len: 1})
	if _, err := memory.NewView(first, a, elsewhere); !errors.Is(err, unix.EINVAL) {
		t.Errorf("buffers of two NICs: %v", err)
	}
	for name, x := range map[string]struct {
		l    layout.Layout
		bufs []*memory.Buffer
	}{
		"no buffers":     {first, nil},
		"past a buffer":  {sg(layout.Extent{Off: 8, Len: 3}), []*memory.Buffer{a, b}},
		"no such buffer": {sg(layout.Extent{Source: 2, Len: 1}), []*memory.Buffer{a, b}},
		"past its end":   {must(layout.Interleaved(layout.Extent{Source: 1, Len: 2}, layout.Dim{Count: 4, Stride: 7}))(t), []*memory.Buffer{a, b}},
	} {
		if _, err := memory.NewView(x.l, x.bufs...); !errors.Is(err, failure.ErrRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for buf, text := range map[*memory.Buffer]string{a: "0123456789", b: "abcdefghijklmnopqrst"} {
		w.ok(second(buf.WriteAt([]byte(text), 0)))
	}
	v := must(memory.NewView(sg(layout.Extent{Source: 1, Off: 18, Len: 2}, layout.Extent{Off: 3, Len: 4}), a, b))(t)
	rb := w.share(theirs.All(), allAccess)
	w.ok(w.a.Write(v.All(), w.ab, rb.All(), "view"))
	w.done(w.a, operation.Write, "view")
	if got := content(t, theirs); string(got) != "st3456" {
		t.Errorf("the write has moved %q", got)
	}
	for name, s := range map[string]memory.Span{
		"past its end": {View: v, Offset: 1, Length: 6}, "before it": {View: v, Offset: -1, Length: 6}, "beyond": {View: v, Offset: 1 << 62, Length: 6},
	} {
		if err := w.a.Write(s, w.ab, rb.All(), nil); !errors.Is(err, failure.ErrRange) {
			t.Errorf("write from a view, %s: %v", name, err)
		}
	}
	if err := w.a.Write(memory.Span{Buf: a, View: v, Length: 6}, w.ab, rb.All(), nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a buffer and a view: %v", err)
	}
	if _, err := w.a.Share(w.ab, memory.Span{View: v, Length: 5}, allAccess); !errors.Is(err, unix.EINVAL) {
		t.Errorf("share a part of a view: %v", err)
	}
	w.ok(b.Close())
	if err := w.a.Write(v.All(), w.ab, rb.All(), nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a view of a closed buffer: %v", err)
	}
}

// An operation may change a view if it may change the bytes that it reaches; a peer gets a key
// only if it may change all buffers.
func TestViewsRights(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	whole, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	r := testenv.Seeded(t)
	here, there := random(t, r, whole, 64), random(t, r, theirs, 64)
	rw, ro := must(whole.Slice(0, 32))(t), must(whole.ReadOnlySlice(32, 32))(t)
	closing(t, rw)
	closing(t, ro)
	var g memory.Span
	assign := func(list ...layout.Extent) { g = viewOf(t, must(layout.SG(list...))(t), rw, ro) }
	rb := w.share(theirs.All(), allAccess)
	// change changes 8 bytes from off on.
	change := func(off int64, want error) {
		t.Helper()
		s := memory.Span{View: g.View, Offset: off, Length: 8}
		for name, err := range map[string]error{
			"read":             w.a.Read(s, w.ab, rb.Part(0, 8), nil),
			"receive":          w.a.Recv(s, w.ab, nil),
			"fetch-and-add":    w.a.FetchAdd(s, w.ab, rb.Part(32, 8), 0, nil),
			"compare-and-swap": w.a.CompareSwap(s, w.ab, rb.Part(32, 8), 0, 0, nil),
		} {
			if !errors.Is(err, want) {
				t.Fatalf("%s: %v, want %v", name, err, want)
			}
		}
	}
	taken := func() {
		t.Helper()
		w.ok(w.b.Send(memory.Span{Buf: theirs, Length: 8}, w.ba, "message"))
		w.done(w.b, operation.Send, "message")
		for range 4 {
			if c := w.wait(w.a); c.Err != nil {
				t.Fatal(c.Err)
			}
		}
	}

	assign(layout.Extent{Off: 8, Len: 16})
	w.ok(w.a.Read(g, w.ab, rb.Part(0, 16), "all"))
	w.done(w.a, operation.Read, "all")
	change(0, nil)
	taken()
	assign(layout.Extent{Off: 8, Len: 8}, layout.Extent{Source: 1, Len: 8}, layout.Extent{Off: 16, Len: 8})
	if err := w.a.Read(g, w.ab, rb.Part(0, 24), nil); !errors.Is(err, unix.EACCES) {
		t.Errorf("read into all: %v", err)
	}
	for _, off := range []int64{1, 8, 15} {
		change(off, unix.EACCES)
	}
	for _, off := range []int64{0, 16} {
		change(off, nil)
		taken()
	}
	assign(layout.Extent{Off: 16, Len: 8})
	w.ok(w.a.Read(g, w.ab, rb.Part(40, 8), "again"))
	w.done(w.a, operation.Read, "again")
	copy(here[16:24], there[40:])
	if got := content(t, whole); string(got[16:24]) != string(here[16:24]) || string(got[:8]) != string(here[:8]) || string(got[24:]) != string(here[24:]) {
		t.Errorf("other bytes have changed:\n%x, want\n%x", got, here)
	}
	// Reading from it needs no right.
	assign(layout.Extent{Source: 1, Len: 32})
	w.ok(w.a.Write(g, w.ab, rb.Part(0, 32), "write"))
	w.done(w.a, operation.Write, "write")

	// A peer sees a view's buffers through any layout.
	assign(layout.Extent{Len: 32})
	for _, access := range []ibvfd.Access{ibvfd.AccessRemoteWrite, ibvfd.AccessRemoteAtomic, allAccess} {
		if _, err := w.a.Share(w.ab, g, access); !errors.Is(err, unix.EACCES) {
			t.Errorf("shared with %v: %v", access, err)
		}
	}
	must(w.a.Share(w.ab, g, ibvfd.AccessRemoteRead))(t)
}

// A withdrawn key does not work.
func TestUnshare(t *testing.T) { testUnshare(t, inMemory(t)) }

func testUnshare(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	kept := must(w.b.Share(w.ba, theirs.All(), allAccess))(t)
	gone := must(w.b.Share(w.ba, theirs.All(), allAccess))(t)
	for range 2 {
		w.ok(w.b.Unshare(gone))
	}
	w.ok(w.a.Write(mine.All(), w.ab, kept.All(), "kept"))
	w.done(w.a, operation.Write, "kept")
	w.ok(w.a.Write(mine.All(), w.ab, gone.All(), "gone"))
	w.failed(w.a, "gone", ibvfd.WCRemAccessErr)
	w.lost(w.a, w.ab)
	if _, err := w.a.Share(w.ab, mine.All(), allAccess); !errors.Is(err, ErrNotConnected) {
		t.Errorf("sharing with a peer that is gone: %v", err)
	}
	w.ok(w.b.Unshare(kept)) // it ended with the connection
}

// A key is withdrawn by any view of it, and only by the endpoint that has shared it.
func TestUnshareViews(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	rb := must(w.b.Share(w.ba, theirs.All(), allAccess))(t)
	decoded := new(memory.RemoteBuffer)
	w.ok(decoded.UnmarshalBinary(must(rb.MarshalBinary())(t)))
	for name, err := range map[string]error{
		"what was received":  w.a.Unshare(decoded),
		"another endpoint's": w.a.Unshare(rb),
		"one's own, decoded": w.b.Unshare(decoded),
		"nothing":            w.b.Unshare(nil),
	} {
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.ok(w.a.Write(mine.All(), w.ab, decoded.All(), "kept"))
	w.done(w.a, operation.Write, "kept")
	half := must(layout.Contiguous(0, 32))(t)
	w.ok(w.b.Unshare(must(rb.View(half))(t)))
	w.ok(w.b.Unshare(rb))
	w.ok(w.a.Write(mine.All(), w.ab, decoded.All(), "gone"))
	w.failed(w.a, "gone", ibvfd.WCRemAccessErr)
	w.ok(w.b.Close())
	w.ok(w.b.Unshare(rb))
}

// The table has a limit, and freed places can be used again.
func TestPeersAreBounded(t *testing.T) {
	e := inMemory(t).endpoint(t, EndpointOptions{MaxPeers: 2})
	a := must(e.Insert("127.0.0.1:1"))(t)
	must(e.Insert("127.0.0.1:2"))(t)
	if _, err := e.Insert("127.0.0.1:3"); !errors.Is(err, failure.ErrLimit) {
		t.Errorf("a third of two: %v", err)
	}
	if err := e.Remove(a); err != nil {
		t.Error(err)
	}
	if err := e.Remove(a); !errors.Is(err, ErrNotConnected) {
		t.Errorf("removed twice: %v", err)
	}
	if again := must(e.Insert("127.0.0.1:3"))(t); again == a {
		t.Errorf("peer %d is two", again)
	}
	if _, err := e.Insert("nonsense"); err == nil {
		t.Error("an address without a port")
	}
}

// A removed peer stays removed, whatever is added after it and whatever happens to its
// connection.
func TestPeersAreNotMixedUp(t *testing.T) {
	s := inMemory(t)
	silent := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	e := s.endpoint(t, EndpointOptions{})
	ctx, cancel := context.WithCancel(limited(t))
	failed := make(chan error, 1)
	go func() {
		_, err := e.Connect(ctx, silent.Addr().String())
		failed <- err
	}()
	for len(e.Peers()) == 0 {
		runtime.Gosched()
	}
	first := e.Peers()[0]
	if err := e.Remove(first); err != nil {
		t.Fatal(err)
	}
	next := must(e.Insert("127.0.0.1:1"))(t)
	cancel()
	if err := <-failed; err == nil {
		t.Error("connected to nobody")
	}
	if list := e.Peers(); next == first || len(list) != 1 || list[0] != next {
		t.Errorf("peers %v, want %v and not %v", list, next, first)
	}

	// Accept does not return the removed peer, and no operation goes to another peer.
	addr := must(e.Listen("127.0.0.1:0"))(t).String()
	caller := s.endpoint(t, EndpointOptions{})
	must(caller.Connect(limited(t), addr))(t)
	for len(e.accepted) == 0 {
		runtime.Gosched()
	}
	gone := e.Peers()[1]
	if err := e.Remove(gone); err != nil {
		t.Fatal(err)
	}
	must(caller.Connect(limited(t), addr))(t)
	p := must(e.Accept(limited(t)))(t)
	if p == gone {
		t.Errorf("accepted %d, who was removed", p)
	}
	buf := hostKind.make(t, e.nic, 8)
	for name, err := range map[string]error{
		"Send": e.Send(buf.All(), gone, nil), "Share": second(e.Share(gone, buf.All(), allAccess)), "Remove": e.Remove(gone),
	} {
		if !errors.Is(err, ErrNotConnected) {
			t.Errorf("%s with a peer that was removed: %v", name, err)
		}
	}
	if list := e.Peers(); len(list) != 2 {
		t.Errorf("peers %v", list)
	}
}
