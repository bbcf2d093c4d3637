// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

// Memory that one side exports is the other's to write and to read.
func testHello(t *testing.T, s *setting) {
	p, r := s.pair(t), testenv.Seeded(t)
	s.eachKind(t, func(t *testing.T, lk, rk kind) {
		what := lk.name + " to " + rk.name
		const size = 9001
		mine, theirs := lk.alloc(t, p.a, size), rk.alloc(t, p.b, size)
		remote := p.export(theirs.All(), gpurdma.ReadWrite)
		want := fill(t, r, mine)
		ok(t, p.client.Write(limited(t), remote, mine.All()))
		p.settle()
		same(t, what+": written", theirs, want)
		same(t, what+": source", mine, want)
		want = fill(t, r, theirs)
		ok(t, theirs.Sync())
		ok(t, p.client.Read(limited(t), mine.All(), remote))
		same(t, what+": read", mine, want)
		same(t, what+": read from", theirs, want)
		ok(t, mine.Flush(limited(t)))
		ok(t, theirs.Flush(limited(t)))
	})
	for _, c := range []*gpurdma.Conn{p.client, p.server} {
		if text := c.String(); !strings.Contains(text, s.nics[0]) || !strings.Contains(text, "up") {
			t.Errorf("%s", text)
		}
		l := c.Rails()
		if len(l) != len(s.nics) || l[0].NIC != s.nics[0] || l[0].Port == 0 {
			t.Errorf("%+v", l)
		}
		for _, r := range l {
			if made := r.Port != 0; !slices.Contains(s.nics, r.NIC) || made && (!r.Up || !r.Local.IsValid() || !r.Peer.IsValid()) {
				t.Errorf("%+v", l)
			}
		}
	}
	if a, b := p.client.RemoteAddr().String(), p.ln.Addr().String(); a != b {
		t.Errorf("the peer is %s, the listener %s", a, b)
	}
	if a, b := p.client.LocalAddr().String(), p.server.RemoteAddr().String(); a != b {
		t.Errorf("local %s, for the peer %s", a, b)
	}
}

// model is memory of both sides, and the bytes that it should have.
type model struct {
	p            *pair
	what         string
	mine, theirs *gpurdma.Buffer
	remote       gpurdma.Remote
	l, r         []byte
}

func newModel(p *pair, rnd *rand.Rand, lk, rk kind, lsize, rsize int64) *model {
	m := &model{p: p, what: lk.name + " to " + rk.name, mine: lk.alloc(p.t, p.a, lsize), theirs: rk.alloc(p.t, p.b, rsize)}
	m.l, m.r = fill(p.t, rnd, m.mine), fill(p.t, rnd, m.theirs)
	ok(p.t, m.theirs.Sync())
	m.remote = p.export(m.theirs.All(), all)
	return m
}

func (m *model) check() {
	m.p.t.Helper()
	m.p.settle()
	same(m.p.t, m.what+": local", m.mine, m.l)
	same(m.p.t, m.what+": remote", m.theirs, m.r)
}

// Ranges of any size and place are moved, and no other byte.
func testRanges(t *testing.T, s *setting) {
	p, r := s.pair(t), testenv.Seeded(t)
	s.eachKind(t, func(t *testing.T, lk, rk kind) {
		m := newModel(p, r, lk, rk, 70001, 70003)
		for range testenv.Count(12) {
			n := r.Int64N(70001)
			if r.IntN(2) == 0 {
				n = r.Int64N(100)
			}
			lo, ro := r.Int64N(70001-n+1), r.Int64N(70003-n+1)
			if r.IntN(2) == 0 {
				ok(t, p.client.Write(limited(t), m.remote.Range(ro, n), m.mine.Range(lo, n)))
				copy(m.r[ro:ro+n], m.l[lo:])
			} else {
				ok(t, p.client.Read(limited(t), m.mine.All().Range(0, 70001).Range(lo, n), m.remote.All().Range(0, 70003).Range(ro, n)))
				copy(m.l[lo:lo+n], m.r[ro:])
			}
			m.check()
		}
	})
}

// bytesOf returns where the bytes of an interleaved layout are.
func bytesOf(off, length int64, dims ...gpurdma.Dim) (list []int64) {
	if len(dims) == 0 {
		for i := range length {
			list = append(list, off+i)
		}
		return list
	}
	for i := range dims[0].Count {
		list = append(list, bytesOf(off+i*dims[0].Stride, length, dims[1:]...)...)
	}
	return list
}

// Views of both sides are moved byte for byte, and no other byte.
func testViews(t *testing.T, s *setting) {
	p, r := s.pair(t), testenv.Seeded(t)
	s.eachKind(t, func(t *testing.T, lk, rk kind) {
		m := newModel(p, r, lk, rk, 40000, 50000)
		for range testenv.Count(6) {
			// Blocks of both sides have different lengths, and the same sum.
			unit := 1 + r.Int64N(40)
			ld := []gpurdma.Dim{{Count: 6, Stride: 5000}, {Count: 10, Stride: 4*unit + r.Int64N(40)}}
			rd := []gpurdma.Dim{{Count: 30, Stride: 8*unit + r.Int64N(900)}}
			lo, ro := r.Int64N(100), r.Int64N(100)
			lv := m.mine.View(gpurdma.Interleaved(gpurdma.Extent{Off: lo, Len: 4 * unit}, ld...))
			rv := m.remote.View(gpurdma.Interleaved(gpurdma.Extent{Off: ro, Len: 8 * unit}, rd...))
			lb, rb := bytesOf(lo, 4*unit, ld...), bytesOf(ro, 8*unit, rd...)
			if lv.Size() != int64(len(lb)) || rv.Size() != lv.Size() {
				t.Fatalf("sizes %d, %d, want %d: %v, %v", lv.Size(), rv.Size(), len(lb), lv.Err(), rv.Err())
			}
			from := r.IntN(len(lb))
			n := r.IntN(len(lb) - from + 1)
			lv, rv = lv.Range(int64(from), int64(n)), rv.Range(int64(from), int64(n))
			if r.IntN(2) == 0 {
				ok(t, p.client.Write(limited(t), rv, lv))
				for i := from; i < from+n; i++ {
					m.r[rb[i]] = m.l[lb[i]]
				}
			} else {
				ok(t, p.client.Read(limited(t), lv, rv))
				for i := from; i < from+n; i++ {
					m.l[lb[i]] = m.r[rb[i]]
				}
			}
			m.check()
		}
		// A view of two buffers, on both sides.
		l, x := []*gpurdma.Buffer{lk.alloc(t, p.a, 300), lk.alloc(t, p.a, 200)}, []*gpurdma.Buffer{rk.alloc(t, p.b, 250), rk.alloc(t, p.b, 150)}
		var lw, rw [2][]byte
		for i := range 2 {
			lw[i], rw[i] = fill(t, r, l[i]), fill(t, r, x[i])
			ok(t, x[i].Sync())
		}
		lay := must(layout.RoundRobin(9, layout.Strand{Extent: gpurdma.Extent{Off: 3, Len: 7}, Stride: 20}, layout.Strand{Extent: gpurdma.Extent{Source: 1, Off: 1, Len: 4}, Stride: 13}))(t)
		remote := p.export(gpurdma.View(lay, x...), all)
		ok(t, p.client.Write(limited(t), remote.Range(5, 80), gpurdma.View(lay, l...).Range(5, 80)))
		for k := int64(5); k < 85; k++ {
			i, at := 0, k/11*20+3+k%11
			if k%11 >= 7 {
				i, at = 1, k/11*13+1+k%11-7
			}
			rw[i][at] = lw[i][at]
		}
		p.settle()
		for i := range 2 {
			same(t, m.what+": a view of two, local", l[i], lw[i])
			same(t, m.what+": a view of two, remote", x[i], rw[i])
		}
	})
}

// Several spans of a side follow one another.
func testSeveralSpans(t *testing.T, s *setting) {
	p, r := s.pair(t), testenv.Seeded(t)
	s.eachKind(t, func(t *testing.T, lk, rk kind) {
		m := newModel(p, r, lk, rk, 1000, 1000)
		op := gpurdma.Op{
			Kind:  gpurdma.OpWrite,
			Local: m.mine.Range(900, 10), Locals: []gpurdma.Span{m.mine.Range(0, 5), m.mine.Range(500, 0), m.mine.Range(3, 35)},
			Remote: m.remote.Range(7, 1), Remotes: []gpurdma.Remote{m.remote.Range(950, 29), m.remote.Range(100, 20)},
		}
		var line []byte
		line = append(append(append(line, m.l[900:910]...), m.l[0:5]...), m.l[3:38]...)
		b := p.client.Batch()
		b.Add(op)
		ok(t, b.Do(limited(t)))
		copy(m.r[7:8], line[:1])
		copy(m.r[950:979], line[1:30])
		copy(m.r[100:120], line[30:])
		m.check()

		op.Kind = gpurdma.OpRead
		op.Local, op.Locals = m.mine.Range(200, 10), []gpurdma.Span{m.mine.Range(300, 40)}
		x := must(p.client.Start(limited(t), op))(t)
		<-x.Done()
		ok(t, x.Err())
		line = append(append(bytes.Clone(m.r[7:8]), m.r[950:979]...), m.r[100:120]...)
		copy(m.l[200:210], line[:10])
		copy(m.l[300:340], line[10:])
		m.check()
	})
}

// Bytes of the program are written without memory that is registered, and may change at once.
func testInline(t *testing.T, s *setting) {
	p, r := s.pair(t), testenv.Seeded(t)
	m := newModel(p, r, s.kinds[0], s.kinds[0], 1, 300)
	for _, n := range []int{1, 8, 63, 64, 65, 255, 256} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		copy(m.r[10:], data)
		x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Inline: data, Remote: m.remote.Range(10, int64(n))}))(t)
		clear(data)
		<-x.Done()
		ok(t, x.Err())
		m.check()
	}
	b := p.client.Batch()
	b.Add(gpurdma.Op{Kind: gpurdma.OpWrite, Inline: make([]byte, 257), Remote: m.remote.Range(0, 257)})
	if err := b.Do(limited(t)); err == nil {
		t.Error("257 bytes were written inline")
	}
	m.check()
}

// Operations on no bytes succeed, and notify.
func testNothing(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, _, remote := p.both(64)
	ok(t, p.client.Write(limited(t), remote.Range(64, 0), mine.Range(64, 0)))
	ok(t, p.client.Read(limited(t), mine.Range(0, 0), remote.Range(0, 0)))
	ok(t, p.client.Write(limited(t), remote.Range(0, 0), mine.Range(0, 0), gpurdma.Notify([]byte("nothing"))))
	if n := must(p.server.ReceiveNotification(limited(t)))(t); string(n) != "nothing" {
		t.Errorf("note %q", n)
	}
	ok(t, p.client.Write(limited(t), remote.Range(0, 0), mine.Range(0, 0), gpurdma.Notify(nil), gpurdma.Delivered(), gpurdma.Fence()))
	if n := must(p.server.ReceiveNotification(limited(t)))(t); len(n) != 0 {
		t.Errorf("note %q", n)
	}
	ok(t, p.client.Send(limited(t), nil))
	if m := must(p.server.Receive(limited(t)))(t); len(m) != 0 {
		t.Errorf("message %q", m)
	}
	ok(t, p.client.Batch().Do(limited(t)))
	p.alive()
}

// A notification comes after the bytes of its write, and of the writes before it.
func testNotify(t *testing.T, s *setting) {
	p, r := s.pair(t), testenv.Seeded(t)
	s.eachKind(t, func(t *testing.T, lk, rk kind) {
		what := lk.name + " to " + rk.name
		const size = 20000
		mine, theirs := lk.alloc(t, p.a, size), rk.alloc(t, p.b, size)
		remote := p.export(theirs.All(), gpurdma.WriteOnly)
		for i := range testenv.Count(10) {
			want := fill(t, r, mine)
			first := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.Range(0, 9000), Remote: remote.Range(0, 9000)}))(t)
			x := must(p.client.Start(limited(t), gpurdma.Op{
				Kind: gpurdma.OpWrite, Local: mine.Range(9000, 11000), Remote: remote.Range(9000, 11000), Notify: true, Note: fmt.Append(nil, i),
			}))(t)
			if n := must(p.server.ReceiveNotification(limited(t)))(t); string(n) != fmt.Sprint(i) {
				t.Fatalf("note %q", n)
			}
			same(t, what+" at the notification", theirs, want)
			for _, x := range []*gpurdma.Transfer{first, x} {
				<-x.Done()
				ok(t, x.Err())
			}
		}
	})
}

// A message comes after the bytes of the writes before it.
func testWriteThenSend(t *testing.T, s *setting) {
	p, r := s.pair(t), testenv.Seeded(t)
	s.eachKind(t, func(t *testing.T, lk, rk kind) {
		mine, theirs := lk.alloc(t, p.a, 5000), rk.alloc(t, p.b, 5000)
		remote := p.export(theirs.All(), gpurdma.WriteOnly)
		for range testenv.Count(5) {
			want := fill(t, r, mine)
			b := p.client.Batch()
			for off := int64(0); off < 5000; off += 500 {
				b.Write(remote.Range(off, 500), mine.Range(off, 500))
			}
			b.Add(gpurdma.Op{Kind: gpurdma.OpSend, Inline: []byte("written")})
			ok(t, b.Do(limited(t)))
			if m := must(p.server.Receive(limited(t)))(t); string(m) != "written" {
				t.Fatalf("message %q", m)
			}
			same(t, lk.name+" to "+rk.name, theirs, want)
		}
	})
}

// Of writes to the same bytes the last one wins.
func testLastWriteWins(t *testing.T, s *setting) {
	p := s.pair(t)
	const n = 200
	mine, theirs, remote := p.both(n)
	want := make([]byte, n)
	for i := range want {
		want[i] = byte(i + 1)
	}
	put(t, mine, want)
	b := p.client.Batch()
	for i := range int64(n) {
		b.Write(remote.Range(5, 1), mine.Range(i, 1))
	}
	ok(t, b.Do(limited(t)))
	p.settle()
	want = make([]byte, n)
	want[5] = n
	same(t, "the last write", theirs, want)
}

// A write with Delivered completes when its bytes are in the memory.
func testDelivered(t *testing.T, s *setting) {
	p, r := s.pair(t), testenv.Seeded(t)
	for _, k := range s.kinds {
		mine, theirs := k.alloc(t, p.a, 8192), host(t, p.b, 8192)
		remote := p.export(theirs.All(), gpurdma.ReadWrite)
		for range testenv.Count(5) {
			want := fill(t, r, mine)
			ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Delivered()))
			same(t, "delivered from "+k.name, theirs, want)
		}
		unreadable := p.export(theirs.All(), gpurdma.WriteOnly)
		if err := p.client.Write(limited(t), unreadable, mine.All(), gpurdma.Delivered()); err == nil {
			t.Error("a byte of memory that must not be read was read back")
		}
	}
	p.alive()
}

// An operation with a fence starts when those before it have completed.
func testFence(t *testing.T, s *setting) {
	p := s.pair(t)
	for _, k := range s.kinds {
		mine, theirs := k.alloc(t, p.a, 200_000), host(t, p.b, 100_000)
		remote := p.export(theirs.All(), gpurdma.ReadWrite)
		for i := range testenv.Count(10) {
			old, next := byte(2*i), byte(2*i+1)
			both := append(bytes.Repeat([]byte{0xee}, 100_000), bytes.Repeat([]byte{next}, 100_000)...)
			put(t, mine, both)
			put(t, theirs, bytes.Repeat([]byte{old}, 100_000))
			b := p.client.Batch()
			b.Read(mine.Range(0, 100_000), remote)
			b.Write(remote, mine.Range(100_000, 100_000), gpurdma.Fence(), gpurdma.Delivered()) // a read does not push the bytes of a write
			b.Read(mine.Range(0, 1000), remote.Range(0, 1000), gpurdma.Fence())
			ok(t, b.Do(limited(t)))
			want := append(bytes.Repeat([]byte{next}, 1000), bytes.Repeat([]byte{old}, 99_000)...)
			same(t, "read from before a fence: "+k.name, mine, append(want, both[100_000:]...))
			same(t, "written after a fence: "+k.name, theirs, both[100_000:])
		}
	}
}
