// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/layouttest"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rma"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

func TestOperations(t *testing.T) { testOperations(t, inMemory(t)) }

// Every operation, with every kind of memory on either side; every byte of both buffers is
// compared after each operation.
func testOperations(t *testing.T, s setting) {
	s.eachPair(t, func(t *testing.T, local, remote kind) {
		r := testenv.Seeded(t)
		w := s.world(t, EndpointOptions{})
		const size = 10000
		mine, theirs := local.make(t, w.a.nic, size), remote.make(t, w.b.nic, size)
		here, there := random(t, r, mine, size), random(t, r, theirs, size)
		rb := w.share(theirs.All(), allAccess)
		check := func(what string) {
			t.Helper()
			same(t, what+", here", mine, here)
			same(t, what+", there", theirs, there)
		}
		l := func(off, n int64) memory.Span { return memory.Span{Buf: mine, Offset: off, Length: n} }

		w.ok(w.a.Write(l(100, 500), w.ab, rb.Part(7, 500), "w"))
		if c := w.done(w.a, operation.Write, "w"); c.Len != 500 || c.Peer != w.ab {
			t.Errorf("%+v", c)
		}
		copy(there[7:], here[100:600])
		check("Write")

		w.ok(w.a.WriteV([]memory.Span{l(0, 3), l(5000, 70), l(64, 1)}, w.ab, rb.Part(9000, 74), 1))
		w.done(w.a, operation.Write, 1)
		copy(there[9000:], slices.Concat(here[:3], here[5000:5070], here[64:65]))
		check("WriteV")

		w.ok(w.a.WriteMsg(rma.Msg{
			Local: []memory.Span{l(0, 100), l(200, 50)}, Peer: w.ab, Context: 2,
			Remote: []memory.RemoteSpan{rb.Part(1000, 30), rb.Part(3000, 110), rb.Part(2000, 10)},
		}, operation.FlagDeliveryComplete))
		w.done(w.a, operation.Write, 2)
		sent := slices.Concat(here[:100], here[200:250])
		copy(there[1000:], sent[:30])
		copy(there[3000:], sent[30:140])
		copy(there[2000:], sent[140:])
		check("WriteMsg")

		w.ok(w.a.Read(l(300, 200), w.ab, rb.Part(4000, 200), 3))
		w.done(w.a, operation.Read, 3)
		copy(here[300:], there[4000:4200])
		check("Read")

		w.ok(w.a.Read(memory.Span{}, w.ab, memory.RemoteSpan{}, "nothing"))
		if c := w.done(w.a, operation.Read, "nothing"); c.Len != 0 {
			t.Errorf("%+v", c)
		}
		check("Read of no bytes")

		w.ok(w.a.ReadV([]memory.Span{l(900, 10), l(700, 20)}, w.ab, rb.Part(0, 30), 4))
		w.done(w.a, operation.Read, 4)
		copy(here[900:910], there)
		copy(here[700:720], there[10:])
		check("ReadV")

		w.ok(w.a.ReadMsg(rma.Msg{
			Local: []memory.Span{l(8000, 64)}, Peer: w.ab, Context: 5,
			Remote: []memory.RemoteSpan{rb.Part(50, 60), rb.Part(9996, 4)},
		}, operation.FlagFence|operation.FlagCompletion))
		w.done(w.a, operation.Read, 5)
		copy(here[8000:8060], there[50:])
		copy(here[8060:8064], there[9996:])
		check("ReadMsg")

		for i, at := range []int64{16, 9992} {
			old := binary.NativeEndian.Uint64(there[at:])
			w.ok(w.a.FetchAdd(l(400, 8), w.ab, rb.Part(at, 8), 1<<33+5, i))
			w.done(w.a, operation.FetchAdd, i)
			binary.NativeEndian.PutUint64(here[400:], old)
			binary.NativeEndian.PutUint64(there[at:], old+1<<33+5)
			check("FetchAdd")
			w.ok(w.a.CompareSwap(l(408, 8), w.ab, rb.Part(at, 8), old+1<<33+5, 42, nil))
			w.done(w.a, operation.CompareSwap, nil)
			binary.NativeEndian.PutUint64(here[408:], old+1<<33+5)
			binary.NativeEndian.PutUint64(there[at:], 42)
			check("CompareSwap")
			w.ok(w.a.CompareSwap(l(408, 8), w.ab, rb.Part(at, 8), 41, 43, nil))
			w.done(w.a, operation.CompareSwap, nil)
			binary.NativeEndian.PutUint64(here[408:], 42)
			check("CompareSwap that does not")
		}

		testMessages(t, w, mine, theirs, here, there, check)
		testData(t, w, rb, mine, here, there, check)
		stats := w.a.nic.Stats()
		if (stats.Staged > 0) != local.staged {
			t.Errorf("%d bytes staged with %s memory", stats.Staged, local.name)
		}
	})
}

// testMessages sends from a to b.
func testMessages(t *testing.T, w *world, mine, theirs *memory.Buffer, here, there []byte, check func(string)) {
	t.Helper()
	w.ok(w.b.Recv(memory.Span{Buf: theirs, Offset: 6000, Length: 1000}, w.ba, "r1"))
	w.ok(w.b.RecvV([]memory.Span{{Buf: theirs, Offset: 5000, Length: 10}, {Buf: theirs, Offset: 5100, Length: 400}}, w.ba, "r2"))
	w.ok(w.b.Recv(memory.Span{}, w.ba, "r3"))
	w.ok(w.a.Send(memory.Span{Buf: mine, Offset: 10, Length: 300}, w.ab, "s1"))
	w.ok(w.a.SendMsg(rma.Msg{
		Local: []memory.Span{{Buf: mine, Offset: 1, Length: 99}, {Buf: mine, Offset: 2000, Length: 201}},
		Peer:  w.ab, Data: 0xfeedf00d, Context: "s2",
	}, operation.FlagRemoteCQData))
	w.ok(w.a.SendMsg(rma.Msg{Peer: w.ab, Data: 7, Context: "s3"}, operation.FlagRemoteCQData|operation.FlagInject))
	for _, s := range []string{"s1", "s2", "s3"} {
		w.done(w.a, operation.Send, s)
	}
	if c := w.done(w.b, operation.Recv, "r1"); c.Len != 300 || c.Flags != 0 {
		t.Errorf("%+v", c)
	}
	if c := w.done(w.b, operation.Recv, "r2"); c.Len != 300 || c.Flags != operation.FlagRemoteCQData || c.Data != 0xfeedf00d || c.Peer != w.ba {
		t.Errorf("%+v", c)
	}
	if c := w.done(w.b, operation.Recv, "r3"); c.Len != 0 || c.Data != 7 {
		t.Errorf("%+v", c)
	}
	copy(there[6000:], here[10:310])
	sent := slices.Concat(here[1:100], here[2000:2201])
	copy(there[5000:5010], sent)
	copy(there[5100:], sent[10:])
	check("messages")
}

// testData tests writes with data for the peer, and injected ones.
func testData(t *testing.T, w *world, rb *memory.RemoteBuffer, mine *memory.Buffer, here, there []byte, check func(string)) {
	t.Helper()
	for i := range 3 {
		w.ok(w.b.Recv(memory.Span{}, w.ba, i))
	}
	w.ok(w.a.WriteData(memory.Span{Buf: mine, Offset: 77, Length: 1111}, 0x80000001, w.ab, rb.Part(33, 1111), "d"))
	p := []byte("injected, from Go memory")
	w.ok(w.a.InjectWrite(p, w.ab, rb.Part(8000, int64(len(p)))))
	copy(there[8000:], p)
	w.ok(w.a.InjectWriteData(p[:8], 5, w.ab, rb.Part(8100, 8)))
	copy(there[8100:], p[:8])
	clear(p) // inject has copied it
	w.ok(w.a.WriteData(memory.Span{}, 6, w.ab, memory.RemoteSpan{}, "nothing"))
	copy(there[33:], here[77:77+1111])
	w.done(w.a, operation.Write, "d")
	w.done(w.a, operation.Write, "nothing")
	for i, want := range []operation.Completion{{Len: 1111, Data: 0x80000001}, {Len: 8, Data: 5}, {Len: 0, Data: 6}} {
		if c := w.done(w.b, operation.RemoteWrite, i); c.Len != want.Len || c.Data != want.Data || c.Flags != operation.FlagRemoteCQData {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	check("data")
	// Memory may change as soon as it was injected from.
	w.ok(w.a.WriteMsg(rma.Msg{Local: []memory.Span{{Buf: mine, Length: 40}}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.Part(100, 40)}, Context: "i"}, operation.FlagInject|operation.FlagMore))
	copy(there[100:140], here)
	random(t, rand.New(rand.NewPCG(1, 1)), mine, 40)
	copy(here, content(t, mine)[:40])
	w.done(w.a, operation.Write, "i")
	check("inject from a buffer")
}

// A NIC whose READs have fewer SGEs than its WRITEs gets more READs.
func TestReadSGE(t *testing.T) {
	for most, want := range map[int]int{0: 5, 1: 1, 2: 2, 30: 5} {
		s := inMemory(t)
		e := s.endpoint(t, EndpointOptions{})
		fakeOf(e.nic).Configure(func(l *memnic.Limits) { l.MaxSGERead = most })
		w := &world{t: t, a: e, b: s.endpoint(t, EndpointOptions{})}
		w.connect()
		if a := w.a.connTo(w.ab).Works.State().Link.Attr(); a.ReadSGE != want || a.SGE != 5 {
			t.Errorf("of %d: %d SGEs a READ, %d a WRITE", most, a.ReadSGE, a.SGE)
		}
		r := testenv.Seeded(t)
		const size = 700
		mine, theirs := hostKind.make(t, w.a.nic, size), hostKind.make(t, w.b.nic, size)
		here, there := random(t, r, mine, size), random(t, r, theirs, size)
		rb := w.share(theirs.All(), allAccess)
		var into []memory.Span
		for i := range int64(7) {
			into = append(into, memory.Span{Buf: mine, Offset: i * 100, Length: 10})
			copy(here[i*100:], there[i*10:][:10])
		}
		w.ok(w.a.ReadV(into, w.ab, rb.Part(0, 70), "r"))
		w.done(w.a, operation.Read, "r")
		same(t, "read", mine, here)
		w.ok(w.a.WriteV(into, w.ab, rb.Part(500, 70), "w"))
		w.done(w.a, operation.Write, "w")
		copy(there[500:], there[:70])
		same(t, "written", theirs, there)
	}
}

// A NIC without atomics refuses them, and the connection stays up.
func TestNoAtomics(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 16), hostKind.make(t, w.b.nic, 16)
	here := random(t, testenv.Seeded(t), mine, 16)
	rb := w.share(theirs.All(), allAccess) // the peer's NIC has atomics
	fakeOf(w.a.nic).Configure(func(l *memnic.Limits) { l.NoAtomics = true })
	result := memory.Span{Buf: mine, Length: 8}
	for name, err := range map[string]error{
		"fetch-and-add":     w.a.FetchAdd(result, w.ab, rb.Part(0, 8), 1, 1),
		"compare-and-swap":  w.a.CompareSwap(result, w.ab, rb.Part(0, 8), 0, 1, 1),
		"share for atomics": second(w.a.Share(w.ab, mine.All(), allAccess)),
	} {
		var e *failure.Error
		if !errors.Is(err, unix.EOPNOTSUPP) || !errors.As(err, &e) || e.Op != name || e.Device != "fake0" || e.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(w.a.Share(w.ab, mine.All(), allAccess&^ibvfd.AccessRemoteAtomic))(t)
	if posted := w.a.connTo(w.ab).Works.State().Posted; posted != 0 {
		t.Errorf("%d were posted", posted)
	}
	w.ok(w.a.Write(mine.All(), w.ab, rb.All(), "w"))
	w.done(w.a, operation.Write, "w")
	same(t, "afterwards", theirs, here)
}

// buffersOf makes the sources of layouts of a shape, and fills them with random bytes.
func buffersOf(t testing.TB, r *rand.Rand, n *memory.NIC, k kind, s layouttest.Shape, o memory.Ordering) (bufs []*memory.Buffer, bytes [][]byte) {
	t.Helper()
	for range s.Sources {
		b := k.make(t, n, s.Room)
		if o == memory.StrictOrdering {
			b = must(b.StrictSlice(0, s.Room))(t)
			closingBuffer(t, b)
		}
		bufs = append(bufs, b)
	}
	bytes = make([][]byte, s.Sources)
	refill(t, r, bufs, bytes)
	return bufs, bytes
}

// viewOf returns the bytes that a layout takes of buffers.
func viewOf(t testing.TB, l layout.Layout, bufs ...*memory.Buffer) memory.Span {
	t.Helper()
	return must(memory.NewView(l, bufs...))(t).All()
}

// wholeOf returns all bytes of buffers, one buffer after the other.
func wholeOf(t testing.TB, bufs ...*memory.Buffer) memory.Span {
	t.Helper()
	var all []layout.Extent
	for i, b := range bufs {
		all = append(all, layout.Extent{Source: i, Len: b.Size()})
	}
	return viewOf(t, must(layout.SG(all...))(t), bufs...)
}

func refill(t testing.TB, r *rand.Rand, bufs []*memory.Buffer, bytes [][]byte) {
	t.Helper()
	for i, b := range bufs {
		bytes[i] = random(t, r, b, b.Size())
	}
}

func TestMessagesOfLayouts(t *testing.T) {
	s := inMemory(t)
	s.kinds = append(s.kinds, ofSource("only", true, memory.DirectOnly))
	testMessagesOfLayouts(t, s)
}

// A message or a receive with more pieces than a work request may have is packed, and counted.
// With DirectOnly memory it is refused, and the connection stays up.
func testMessagesOfLayouts(t *testing.T, s setting) {
	s.eachPair(t, func(t *testing.T, local, remote kind) {
		r := testenv.Seeded(t)
		w := s.world(t, EndpointOptions{})
		const cells, row, length = 100, 40, 800
		mine, theirs := local.make(t, w.a.nic, cells*row), remote.make(t, w.b.nic, cells*row)
		here, there := random(t, r, mine, cells*row), random(t, r, theirs, cells*row)
		column := must(layout.Interleaved(layout.Extent{Off: 8, Len: 8}, layout.Dim{Count: cells, Stride: row}))(t)
		pairs := must(layout.Interleaved(layout.Extent{Len: 16}, layout.Dim{Count: cells / 2, Stride: row}))(t)
		sending, receiving := viewOf(t, column, mine), viewOf(t, pairs, theirs)
		var message []byte
		for i := range cells {
			message = append(message, here[i*row+8:][:8]...)
		}
		if remote.only {
			w.ok(w.b.Recv(receiving, w.ba, "refused"))
			w.unpacked(w.b, operation.Recv, cells/2)
			receiving = memory.Span{Buf: theirs, Length: length}
		}
		if local.only {
			w.ok(w.a.Send(sending, w.ab, "refused"))
			w.unpacked(w.a, operation.Send, cells)
			sending = memory.Span{Buf: mine, Length: length}
			message = here[:length]
		}
		was := [2]int64{w.a.nic.Stats().Staged, w.b.nic.Stats().Staged}
		w.ok(w.b.Recv(receiving, w.ba, 0))
		w.ok(w.a.Send(sending, w.ab, 0))
		w.done(w.a, operation.Send, 0)
		w.done(w.b, operation.Recv, 0)
		packed := [2]int64{w.a.nic.Stats().Staged - was[0], w.b.nic.Stats().Staged - was[1]}
		for i, k := range []kind{local, remote} {
			want := int64(length)
			if k.only {
				want = 0
			}
			// Staged memory is also copied to its source where it differs.
			if packed[i] < want || packed[i] > want && !(k.staged && i == 1) {
				t.Errorf("%s: %d bytes were counted, want %d", k.name, packed[i], want)
			}
		}
		if remote.only {
			copy(there, message)
		} else {
			for i := range cells / 2 {
				copy(there[i*row:], message[16*i:][:16])
			}
		}
		same(t, "here", mine, here)
		same(t, "there", theirs, there)
	})
}

// unpacked waits for the completion of a message that the CPU must not pack.
func (w *world) unpacked(e *Endpoint, op operation.Kind, pieces int) {
	w.t.Helper()
	c := w.wait(e)
	var why *failure.Error
	if c.Op != op || c.Context != "refused" || !errors.Is(c.Err, errors.ErrUnsupported) || !errors.As(c.Err, &why) {
		w.t.Fatalf("%+v, want that it is refused", c)
	}
	most := e.connTo(e.Peers()[0]).Works.State().Link.Attr().SGE
	for _, part := range []string{fmt.Sprintf("%d pieces", pieces), fmt.Sprintf("at most %d", most), "IOVLimit", "DirectOnly", "PreferDirect"} {
		if !strings.Contains(c.Err.Error(), part) {
			w.t.Errorf("%q does not say %q", c.Err, part)
		}
	}
}

// A packed message continues after the program has released its memory, even the last
// reference.
func TestPackedMessagesKeepTheirMemory(t *testing.T) {
	const cells, row = 100, 40
	s := inMemory(t)
	for _, k := range s.kinds {
		t.Run(k.name, func(t *testing.T) {
			a, b := s.endpoint(t, EndpointOptions{}), s.endpoint(t, EndpointOptions{})
			w := &world{t: t, a: a, b: b}
			addr := must(b.Listen("127.0.0.1:0"))(t)
			r := testenv.Seeded(t)
			column := must(layout.Interleaved(layout.Extent{Off: 8, Len: 8}, layout.Dim{Count: cells, Stride: row}))(t)
			// parts returns a Buffer, whose only reference the caller releases, and another Buffer
			// of the same memory for checks. Neither begins where the memory does.
			parts := func(n *memory.NIC) (part, seen *memory.Buffer, bytes []byte) {
				whole := k.make(t, n, row+cells*row)
				part, seen = must(whole.Slice(row, cells*row))(t), must(whole.Slice(row, cells*row))(t)
				closingBuffer(t, seen)
				return part, seen, random(t, r, seen, cells*row)
			}
			from, mine, here := parts(a.nic)
			to, theirs, there := parts(b.nic)

			// The send waits for its connection, which b does not answer yet; the receive waits
			// for the message.
			peer := must(a.Insert(addr.String()))(t)
			b.mu.Lock()
			err := errors.Join(a.Send(viewOf(t, column, from), peer, "s"), from.Release())
			b.mu.Unlock()
			w.ok(err)
			ba := must(b.Accept(limited(t)))(t)
			w.ok(b.Recv(viewOf(t, column, to), ba, "r"))
			w.ok(to.Release())
			w.done(a, operation.Send, "s")
			w.done(b, operation.Recv, "r")
			for i := range cells {
				copy(there[i*row+8:][:8], here[i*row+8:])
			}
			same(t, "here", mine, here)
			same(t, "there", theirs, there)
		})
	}
}
