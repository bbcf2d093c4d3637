// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/rma"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

func TestFences(t *testing.T) { testFences(t, inMemory(t), 50) }

// A fence orders operations that have no other order: a read of bytes just written, and a
// write or an atomic on bytes just read.
func testFences(t *testing.T, s setting, rounds int) {
	for _, k := range s.kinds {
		t.Run(k.name, func(t *testing.T) {
			w := s.world(t, EndpointOptions{})
			mine, theirs := k.make(t, w.a.nic, 3000), k.make(t, w.b.nic, 3000)
			want := random(t, testenv.Seeded(t), mine, 1000)
			rb := w.share(theirs.All(), allAccess)
			part := func(i int64) memory.Span { return memory.Span{Buf: mine, Offset: i * 1000, Length: 1000} }
			for i := range rounds {
				m := rma.Msg{Peer: w.ab, Context: i}
				m.Local, m.Remote = []memory.Span{part(0)}, []memory.RemoteSpan{rb.Part(0, 1000)}
				w.ok(w.a.WriteMsg(m, operation.FlagMore))
				m.Local = []memory.Span{part(1)}
				w.ok(w.a.ReadMsg(m, operation.FlagFence|operation.FlagMore))
				// 8 bytes would fit into the work request, but only after they have arrived.
				n := []int64{1000, 8}[i%2]
				m.Local, m.Remote = []memory.Span{{Buf: mine, Offset: 1000, Length: n}}, []memory.RemoteSpan{rb.Part(1000, n)}
				w.ok(w.a.WriteMsg(m, operation.FlagFence))
				for _, op := range []operation.Kind{operation.Write, operation.Read, operation.Write} {
					w.done(w.a, op, i)
				}
				got := content(t, mine)
				if string(got[1000:2000]) != string(want) {
					t.Fatalf("round %d: the fenced read came before the write", i)
				}
				if there := content(t, theirs); string(there[1000:1000+n]) != string(want[:n]) || string(there[:1000]) != string(want) {
					t.Fatalf("round %d: the fenced write came before the read", i)
				}
				testFencedAtomics(t, w, mine, theirs, rb)
				want = random(t, testenv.Seeded(t), mine, 1000)
			}
		})
	}
}

// A read before a fenced atomic finds the old value, and a fenced read behind it the result of
// the atomic.
func testFencedAtomics(t *testing.T, w *world, mine, theirs *memory.Buffer, rb *memory.RemoteBuffer) {
	t.Helper()
	old := binary.NativeEndian.Uint64(content(t, theirs)[2000:])
	msg := func(i int64) rma.Msg {
		return rma.Msg{Local: []memory.Span{{Buf: mine, Offset: 2000 + 8*i, Length: 8}}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.Part(2000, 8)}, Context: i}
	}
	w.ok(w.a.ReadMsg(msg(0), operation.FlagMore))
	w.ok(w.a.FetchAddMsg(msg(1), 1, operation.FlagFence|operation.FlagMore))
	w.ok(w.a.ReadMsg(msg(2), operation.FlagFence|operation.FlagMore))
	w.ok(w.a.CompareSwapMsg(msg(3), old+1, old+5, operation.FlagFence))
	for i, op := range []operation.Kind{operation.Read, operation.FetchAdd, operation.Read, operation.CompareSwap} {
		w.done(w.a, op, int64(i))
	}
	got := content(t, mine)[2000:]
	for i, want := range []uint64{old, old, old + 1, old + 1} {
		if v := binary.NativeEndian.Uint64(got[8*i:]); v != want {
			t.Fatalf("operation %d beside a fence has brought %d, want %d", i, v, want)
		}
	}
}

func TestQueues(t *testing.T) { testQueues(t, inMemory(t)) }

// More operations than a queue pair holds wait; more than Depth are refused and
// can be repeated. Each completes once, those of a queue in order.
func testQueues(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{Depth: 40, SendDepth: 8, RecvDepth: 4, MaxSGE: 2})
	const n, each = 300, 64
	mine, theirs := hostKind.make(t, w.a.nic, n*each), hostKind.make(t, w.b.nic, n*each)
	want := random(t, testenv.Seeded(t), mine, n*each)
	rb := w.share(theirs.All(), allAccess)
	posted, done, refused := 0, 0, 0
	for done < n {
		for posted < n {
			off := int64(posted * each)
			// Every other byte: 32 work requests.
			l := must(layout.RoundRobin(each/2, layout.Strand{Extent: layout.Extent{Off: off, Len: 1}, Stride: 2}, layout.Strand{Extent: layout.Extent{Off: off + 1, Len: 1}, Stride: 2}))(t)
			err := w.a.Write(memory.Span{Buf: mine, Offset: off, Length: each}, w.ab, must(rb.View(l))(t).All(), posted)
			if errors.Is(err, operation.ErrQueueFull) {
				refused++
				break
			}
			w.ok(err)
			posted++
		}
		w.done(w.a, operation.Write, done)
		done++
	}
	if refused == 0 {
		t.Error("the queue was never full")
	}
	same(t, "there", theirs, want)
	for range 4 {
		w.ok(w.a.Recv(memory.Span{}, w.ab, nil))
	}
	if err := w.a.Recv(memory.Span{}, w.ab, nil); !errors.Is(err, operation.ErrQueueFull) {
		t.Errorf("a receive too many: %v", err)
	}
}

func TestSelectiveCompletion(t *testing.T) { testSelectiveCompletion(t, inMemory(t)) }

func testSelectiveCompletion(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{Selective: true, AutoReceive: 3})
	mine, theirs := hostKind.make(t, w.a.nic, 100), hostKind.make(t, w.b.nic, 100)
	rb := w.share(theirs.All(), allAccess)
	for i := range 10 {
		w.ok(w.a.Write(mine.All(), w.ab, rb.All(), i))
	}
	w.ok(w.a.WriteMsg(rma.Msg{Local: []memory.Span{mine.All()}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.All()}, Context: "asked"}, operation.FlagCompletion))
	w.done(w.a, operation.Write, "asked")
	// The peer's data arrive without a call of Recv, again and again.
	for i := range 20 {
		w.ok(w.a.WriteMsg(rma.Msg{Local: []memory.Span{mine.All()}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.All()}, Data: uint64(i), Context: i}, operation.FlagCompletion|operation.FlagRemoteCQData))
		w.done(w.a, operation.Write, i)
		if c := w.done(w.b, operation.RemoteWrite, nil); c.Data != uint32(i) || c.Len != 100 {
			t.Errorf("%+v", c)
		}
	}
	testSelectiveAtomics(t, w, mine, theirs, rb)
	bad := forged(rb, func(p *lower.Piece) { p.Key ^= 0xff })
	w.ok(w.a.Write(mine.All(), w.ab, bad.All(), "fails"))
	w.failed(w.a, "fails", ibvfd.WCRemAccessErr)
}

// Atomics make a completion if one is asked for; the result of a silent one has arrived when a
// later one completes.
func testSelectiveAtomics(t *testing.T, w *world, mine, theirs *memory.Buffer, rb *memory.RemoteBuffer) {
	t.Helper()
	counter := rb.Part(16, 8)
	result := func(i int64) memory.Span { return memory.Span{Buf: mine, Offset: 8 * i, Length: 8} }
	msg := func(i int64) rma.Msg {
		return rma.Msg{Local: []memory.Span{result(i)}, Peer: w.ab, Remote: []memory.RemoteSpan{counter}, Context: i}
	}
	old := binary.NativeEndian.Uint64(content(t, theirs)[16:])
	w.ok(w.a.FetchAdd(result(0), w.ab, counter, 1, int64(0)))
	w.ok(w.a.CompareSwap(result(1), w.ab, counter, old+1, 7, int64(1)))
	w.ok(w.a.FetchAddMsg(msg(2), 3, 0))
	w.ok(w.a.FetchAddMsg(msg(3), 4, operation.FlagCompletion))
	w.done(w.a, operation.FetchAdd, int64(3))
	w.ok(w.a.CompareSwapMsg(msg(4), 14, 1, operation.FlagTransmitComplete|operation.FlagDeliveryComplete))
	w.ok(w.a.CompareSwapMsg(msg(5), 1, 2, operation.FlagCompletion|operation.FlagDeliveryComplete))
	if c := w.done(w.a, operation.CompareSwap, int64(5)); c.Len != 8 || c.Peer != w.ab {
		t.Errorf("%+v", c)
	}
	got := content(t, mine)
	for i, want := range []uint64{old, old + 1, 7, 10, 14, 1} {
		if v := binary.NativeEndian.Uint64(got[8*i:]); v != want {
			t.Errorf("atomic %d has brought %d, want %d", i, v, want)
		}
	}
	if v := binary.NativeEndian.Uint64(content(t, theirs)[16:]); v != 2 {
		t.Errorf("the atomics have left %d", v)
	}
}

// The NIC makes completions only for operations with a completion, and for the last one of a
// batch: that one also ends the silent ones before it.
func TestSilentMakeNoCompletions(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{Selective: true})
	mine, theirs := hostKind.make(t, w.a.nic, 100), hostKind.make(t, w.b.nic, 100)
	rb := w.share(theirs.All(), allAccess)
	c := w.a.connTo(w.ab)
	for _, post := range []func(rma.Msg, operation.Flags) error{w.a.WriteMsg, w.a.ReadMsg} {
		flags := make([]operation.Flags, 16)
		for i := range flags {
			flags[i] = operation.FlagMore
		}
		flags[5], flags[15] = operation.FlagMore|operation.FlagCompletion, 0
		for i, f := range flags {
			w.ok(post(rma.Msg{Local: []memory.Span{mine.All()}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.All()}, Context: i}, f))
		}
		var signaled []int
		for q := range rc.Queues {
			for i, wr := range c.Works.State().Link.(*fakeLink).Posted(q) {
				if wr.Flags&ibvfd.SendSignaled != 0 {
					signaled = append(signaled, i)
				}
			}
		}
		if !slices.Equal(signaled, []int{5, 15}) {
			t.Errorf("completions of work requests %v, want 5 and 15", signaled)
		}
		if one := w.wait(w.a); one.Context != 5 || one.Err != nil {
			t.Errorf("%+v", one)
		}
		if n, err := w.a.Poll(make([]operation.Completion, 1)); n != 0 || err != nil || c.Works.State().Posted != 0 {
			t.Errorf("%d completions and %d operations are left, %v", n, c.Works.State().Posted, err)
		}
	}
}

// The NIC makes a completion for the last of several short operations that are posted together. A long
// operation has one of its own, and so has the operation before it. The program gets a completion for each.
func TestShortOperationsShareCompletions(t *testing.T) {
	same := func(size int64) (sizes []int64) { return slices.Repeat([]int64{size}, 8) }
	for _, c := range []struct {
		sizes []int64
		want  []int // work requests with a completion
	}{
		{same(64), []int{7}},
		{same(4096), []int{4, 7}},
		{same(16 << 10), []int{1, 3, 5, 7}},
		{same(17 << 10), []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{[]int64{64, 64, 1 << 20, 64, 64}, []int{1, 2, 4}},
	} {
		w := inMemory(t).world(t, EndpointOptions{})
		most := slices.Max(c.sizes)
		mine, theirs := hostKind.make(t, w.a.nic, most), hostKind.make(t, w.b.nic, most)
		rb := w.share(theirs.All(), allAccess)
		for i, size := range c.sizes {
			flags := operation.FlagMore
			if i == len(c.sizes)-1 {
				flags = 0
			}
			w.ok(w.a.WriteMsg(rma.Msg{Local: []memory.Span{{Buf: mine, Length: size}}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.Part(0, size)}, Context: i}, flags))
		}
		var signaled []int
		for i, wr := range w.a.connTo(w.ab).Works.State().Link.(*fakeLink).Posted(rc.WriteQueue) {
			if wr.Flags&ibvfd.SendSignaled != 0 {
				signaled = append(signaled, i)
			}
		}
		if !slices.Equal(signaled, c.want) {
			t.Errorf("writes of %v bytes: completions of work requests %v, want %v", c.sizes, signaled, c.want)
		}
		for i := range c.sizes {
			if one := w.wait(w.a); one.Context != i || one.Err != nil {
				t.Errorf("writes of %v bytes, completion %d: %+v", c.sizes, i, one)
			}
		}
	}
}

func TestSilentBatch(t *testing.T) { testSilentBatch(t, inMemory(t)) }

// If an operation of a batch fails, the silent ones before it have succeeded and make no
// completions.
func testSilentBatch(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{Selective: true})
	mine, theirs := hostKind.make(t, w.a.nic, 4), hostKind.make(t, w.b.nic, 8)
	want := random(t, testenv.Seeded(t), mine, 4)
	rb := w.share(theirs.All(), allAccess)
	bad := forged(rb, func(p *lower.Piece) { p.Key ^= 0xff })
	for i := range int64(8) {
		m := rma.Msg{Local: []memory.Span{{Buf: mine, Offset: i % 4, Length: 1}}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.Part(i, 1)}, Context: i}
		flags := operation.FlagMore
		switch i {
		case 4:
			m.Remote[0] = bad.Part(i, 1)
		case 7:
			flags = 0
		}
		w.ok(w.a.WriteMsg(m, flags))
	}
	w.failed(w.a, int64(4), ibvfd.WCRemAccessErr)
	for i := int64(5); i < 8; i++ {
		w.failed(w.a, i, ibvfd.WCWRFlushErr)
	}
	w.lost(w.a, w.ab)
	if got := content(t, theirs); string(got[:4]) != string(want) || string(got[4:]) != "\x00\x00\x00\x00" {
		t.Errorf("%x is there, of %x", got, want)
	}
}

func TestConnectionless(t *testing.T) { testConnectionless(t, inMemory(t)) }

// Operations to an address open the connection; after it is lost the next one opens another.
// Keys for any peer work on each.
func testConnectionless(t *testing.T, s setting) {
	const peers = 3
	a := s.endpoint(t, EndpointOptions{})
	w := &world{t: t, a: a}
	mine := hostKind.make(t, a.nic, 100)
	want := random(t, testenv.Seeded(t), mine, 100)
	type target struct {
		e    *Endpoint
		buf  *memory.Buffer
		rb   *memory.RemoteBuffer
		peer operation.Peer
	}
	var targets []target
	for range peers {
		x := target{e: s.endpoint(t, EndpointOptions{AutoReceive: 2})}
		x.buf = hostKind.make(t, x.e.nic, 100)
		addr := must(x.e.Listen("127.0.0.1:0"))(t)
		x.peer = must(a.Insert(addr.String()))(t)
		mine := must(x.e.Share(0, x.buf.All(), allAccess))(t)
		wire := must(mine.MarshalBinary())(t)
		x.rb = new(memory.RemoteBuffer)
		w.ok(x.rb.UnmarshalBinary(wire))
		targets = append(targets, x)
	}
	for round := range 2 {
		for i, x := range targets {
			w.ok(a.WriteData(mine.All(), uint64(i), x.peer, x.rb.All(), i))
		}
		seen := map[any]bool{}
		for range targets {
			c := w.wait(a)
			if c.Err != nil || seen[c.Context] || c.Peer != targets[c.Context.(int)].peer {
				t.Fatalf("%+v", c)
			}
			seen[c.Context] = true
		}
		for i, x := range targets {
			if c := w.done(x.e, operation.RemoteWrite, nil); c.Data != uint32(i) {
				t.Errorf("%+v", c)
			}
			same(t, fmt.Sprint("target ", i), x.buf, want)
			if round == 0 {
				w.ok(x.e.Remove(must(x.e.Accept(limited(t)))(t)))
				w.broken(a, x.peer)
			}
		}
		want = random(t, testenv.Seeded(t), mine, 100)
	}
	bad := must(a.Insert("127.0.0.1:1"))(t)
	w.ok(a.Send(mine.All(), bad, "nobody"))
	if c := w.wait(a); c.Context != "nobody" || !errors.Is(c.Err, ErrNotConnected) {
		t.Errorf("%+v", c)
	}
}

// broken waits until e has noticed that a connection is lost.
func (w *world) broken(e *Endpoint, p operation.Peer) {
	w.t.Helper()
	ctx := limited(w.t)
	c := e.connTo(p)
	for ctx.Err() == nil {
		select {
		case <-c.ended:
			return
		default:
			_, _ = e.Poll(nil)
		}
	}
	w.t.Fatal("the connection is not lost")
}
