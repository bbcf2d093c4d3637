// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// noted takes the next notification of the server, which must be note, without an error.
func (p *pair) noted(note string) {
	p.t.Helper()
	n, err := p.server.ReceiveNotification(limited(p.t))
	if string(n) != note || err != nil {
		p.t.Fatalf("note %q, want %q: %v", n, note, err)
	}
}

// Writes of any shape, from and to any kind of memory, are verified without an alarm. Their bytes and
// notes are those that were sent.
func testVerify(t *testing.T, s *setting) {
	for _, mode := range []int{gpurdma.VerifyAll, gpurdma.VerifySampled} {
		p, r := s.pairWith(t, gpurdma.Config{Verify: mode}, gpurdma.Config{}), testenv.Seeded(t)
		s.eachKind(t, func(t *testing.T, lk, rk kind) {
			m := newModel(p, r, lk, rk, 700_001, 700_003)
			rounds := testenv.Count(20)
			if s.net == nil { // a software NIC of an emulated machine
				rounds = 4
			}
			for i := range rounds {
				note := fmt.Sprint(m.what, mode, i)
				verifiedWrite(m, r, note)
				p.noted(note)
			}
			m.check()
		})
		if st := p.server.Stats(); st.Corrupt != 0 || mode == gpurdma.VerifyAll && st.Checked == 0 {
			t.Errorf("mode %d: %d blocks were compared, %d differ", mode, st.Checked, st.Corrupt)
		}
		if st := p.b.Stats(); st.Checked != p.server.Stats().Checked {
			t.Errorf("%d blocks of the fabric, %d of the connection", st.Checked, p.server.Stats().Checked)
		}
		if st := p.client.Stats(); st.Checked != 0 {
			t.Errorf("the sender has compared %d blocks", st.Checked)
		}
		ok(t, p.ln.Close())
	}
}

// verifiedWrite writes some random bytes of a model, with a note.
func verifiedWrite(m *model, r *rand.Rand, note string) {
	t := m.p.t
	t.Helper()
	opts := []gpurdma.Option{gpurdma.Notify([]byte(note))}
	n := 1 + r.Int64N(600_000)
	lo, ro := r.Int64N(700_001-n+1), r.Int64N(700_003-n+1)
	switch r.IntN(6) {
	case 0: // small
		n = 1 + r.Int64N(100)
	case 1:
		opts = append(opts, gpurdma.Delivered())
	case 2: // bytes of the program
		n = 1 + r.Int64N(256)
		ok(t, writeInline(m.p.client, m.remote.Range(ro, n), m.l[lo:lo+n], note))
		copy(m.r[ro:ro+n], m.l[lo:])
		return
	case 3: // layouts on both sides
		const block, count = 97, 500
		from := gpurdma.Interleaved(gpurdma.Extent{Off: lo % 1000, Len: block}, gpurdma.Dim{Count: count, Stride: 113})
		to := gpurdma.Interleaved(gpurdma.Extent{Off: ro % 1000, Len: count}, gpurdma.Dim{Count: block, Stride: 701})
		ok(t, m.p.client.Write(limited(t), m.remote.View(to), m.mine.View(from), opts...))
		src, dst := bytesOf(lo%1000, block, gpurdma.Dim{Count: count, Stride: 113}), bytesOf(ro%1000, count, gpurdma.Dim{Count: block, Stride: 701})
		for i := range src {
			m.r[dst[i]] = m.l[src[i]]
		}
		return
	case 4: // several parts on both sides
		n = 3 + n/2
		a, b := 1+r.Int64N(n-1), 1+r.Int64N(n-1)
		op := gpurdma.Op{
			Kind: gpurdma.OpWrite, Notify: true, Note: []byte(note),
			Local: m.mine.Range(lo%1000, a), Locals: []gpurdma.Span{m.mine.Range(300_000, n-a)},
			Remote: m.remote.Range(ro%1000, b), Remotes: []gpurdma.Remote{m.remote.Range(310_000, n-b)},
		}
		x := must(m.p.client.Start(limited(t), op))(t)
		<-x.Done()
		ok(t, x.Err())
		bytes := append(append([]byte(nil), m.l[lo%1000:][:a]...), m.l[300_000:][:n-a]...)
		copy(m.r[ro%1000:], bytes[:b])
		copy(m.r[310_000:], bytes[b:])
		return
	}
	ok(t, m.p.client.Write(limited(t), m.remote.Range(ro, n), m.mine.Range(lo, n), opts...))
	copy(m.r[ro:ro+n], m.l[lo:])
}

func writeInline(c *gpurdma.Conn, to gpurdma.Remote, bytes []byte, note string) error {
	x, err := c.Start(context.Background(), gpurdma.Op{Kind: gpurdma.OpWrite, Remote: to, Inline: bytes, Notify: true, Note: []byte(note)})
	if err != nil {
		return err
	}
	<-x.Done()
	return x.Err()
}

// Bytes are summed when they are ready, and when the operations before a fence have completed.
func testVerifyReady(t *testing.T, s *setting) {
	p := s.pairWith(t, gpurdma.Config{Verify: gpurdma.VerifyAll}, gpurdma.Config{})
	r := testenv.Seeded(t)
	for _, k := range s.kinds {
		const size = 300_000
		mine, theirs := k.alloc(t, p.a, size), k.alloc(t, p.b, 2*size)
		remote := p.export(theirs.All(), gpurdma.ReadWrite)
		fill(t, r, mine)
		open := gated(t, mine)
		x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote.Range(0, size), Notify: true, Note: []byte("ready")}))(t)
		want := fill(t, r, mine)
		open()
		<-x.Done()
		ok(t, x.Err())
		p.noted("ready")
		mine.SetReady(nil)

		fill(t, r, mine)
		b := p.client.Batch()
		b.Read(mine.All(), remote.Range(0, size))
		b.Write(remote.Range(size, size), mine.All(), gpurdma.Fence(), gpurdma.Notify([]byte("fenced")))
		ok(t, b.Do(limited(t)))
		p.noted("fenced")
		same(t, k.name, theirs, append(want, want...))

		broken := errors.New("the kernel has crashed")
		mine.SetReady(func(context.Context) error { return broken })
		if err := p.client.Write(limited(t), remote.Range(0, size), mine.All(), gpurdma.Notify(nil)); !errors.Is(err, broken) {
			t.Errorf("%s: %v", k.name, err)
		}
		mine.SetReady(func(context.Context) error { return nil })
		ok(t, p.client.Write(limited(t), remote.Range(0, size), mine.All(), gpurdma.Fence(), gpurdma.Notify([]byte("both"))))
		p.noted("both")
	}
	if st := p.server.Stats(); st.Corrupt != 0 || st.Checked != uint64(3*5*len(s.kinds)) {
		t.Errorf("%d blocks were compared, %d differ", st.Checked, st.Corrupt)
	}
	p.alive()
}

// Memory is found by its descriptor, in whatever way the peer has got it.
func testVerifyShared(t *testing.T, s *setting) {
	p := s.pairWith(t, gpurdma.Config{Verify: gpurdma.VerifyAll}, gpurdma.Config{})
	mine, theirs := host(t, p.a, 1000), host(t, p.b, 1000)
	put(t, mine, fmt.Appendf(nil, "%0*d", 1000, 7))
	every := gpurdma.Interleaved(gpurdma.Extent{Len: 10}, gpurdma.Dim{Count: 50, Stride: 20})
	for name, share := range map[string]func() gpurdma.Remote{
		"a range":        func() gpurdma.Remote { return must(p.server.Share(theirs.Range(100, 500), all))(t) },
		"the same again": func() gpurdma.Remote { return must(p.server.Share(theirs.Range(200, 500), all))(t) },
		"a view":         func() gpurdma.Remote { return must(p.server.Share(theirs.View(every), all))(t) },
		"a view of it":   func() gpurdma.Remote { return must(p.server.Share(theirs.All(), all))(t).View(every) },
	} {
		wire := must(share().MarshalBinary())(t)
		var remote gpurdma.Remote
		ok(t, remote.UnmarshalBinary(wire))
		ok(t, p.client.Write(limited(t), remote, mine.Range(0, remote.Size()), gpurdma.Notify([]byte(name))))
		p.noted(name)
	}
	for name, x := range map[string]gpurdma.Remote{
		"an exported view":  p.export(theirs.View(every), all),
		"an exported range": p.export(theirs.Range(100, 500), all),
		"a view of a range": p.export(theirs.Range(1, 999), all).View(every),
	} {
		ok(t, p.client.Write(limited(t), x, mine.Range(0, x.Size()), gpurdma.Notify([]byte(name))))
		p.noted(name)
	}
	if st := p.server.Stats(); st.Checked != 7 || st.Corrupt != 0 {
		t.Errorf("%d blocks were compared, %d differ", st.Checked, st.Corrupt)
	}
}

// Bytes that the receiver's program changes are found, and so is memory that was closed. The
// connection goes on, and Notifications, too.
func testVerifyFinds(t *testing.T, s *setting) {
	p := s.pairWith(t, gpurdma.Config{Verify: gpurdma.VerifyAll}, gpurdma.Config{})
	for _, k := range s.kinds {
		const size, at = 200_000, 70_000
		mine, theirs := host(t, p.a, size), k.alloc(t, p.b, size+10)
		ok(t, p.server.Export(k.name, theirs.All(), gpurdma.ReadWrite))
		remote := must(p.client.Import(limited(t), k.name))(t)
		write := func(note string) {
			t.Helper()
			ok(t, p.client.Write(limited(t), remote.Range(10, size), mine.All(), gpurdma.Notify([]byte(note)), gpurdma.Delivered()))
		}
		write("wrong")
		p.settle()
		must(theirs.WriteAt([]byte{1}, at))(t)
		note, err := p.server.ReceiveNotification(limited(t))
		var x *gpurdma.CorruptError
		if string(note) != "wrong" || !errors.Is(err, gpurdma.ErrCorrupt) || !errors.As(err, &x) || errors.Is(err, gpurdma.ErrUnverified) {
			t.Fatalf("%s: note %q, %v", k.name, note, err)
		}
		if x.Memory != k.name || x.Off != 64<<10 || x.At != 64<<10+10 || x.Len != 64<<10 || x.Sent == x.Found || x.Blocks != 1 || x.Checked != 4 {
			t.Errorf("%s: %+v", k.name, x)
		}
		for _, word := range []string{fmt.Sprintf("0x%08x", x.Sent), fmt.Sprintf("0x%08x", x.Found), k.name, "write them again"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("no %q in %v", word, err)
			}
		}
		write("right")
		p.noted("right")

		write("late")
		p.settle()
		ok(t, p.server.Unexport(k.name))
		if note, err := p.server.ReceiveNotification(limited(t)); string(note) != "late" || !errors.Is(err, gpurdma.ErrUnverified) || errors.Is(err, gpurdma.ErrCorrupt) || !strings.Contains(err.Error(), "Unexport") {
			t.Errorf("%s: note %q, %v", k.name, note, err)
		}
	}
	// An iterator goes on.
	mine, theirs, remote := p.both(8)
	for _, note := range []string{"a", "b", "c"} {
		ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify([]byte(note)), gpurdma.Delivered()))
	}
	p.settle()
	put(t, theirs, []byte("changed!"))
	got, wrong := "", 0
	for note, err := range p.server.Notifications(limited(t)) {
		if got += string(note); errors.Is(err, gpurdma.ErrCorrupt) {
			wrong++
		}
		if got == "abc" {
			break
		}
	}
	if wrong != 3 {
		t.Errorf("%d of 3 notifications are wrong", wrong)
	}
	if st := p.server.Stats(); st.Corrupt != uint64(len(s.kinds)+3) {
		t.Errorf("%d blocks differ", st.Corrupt)
	}
	p.alive()
}

// Notes leave room for sums, and a destination that cannot be checked is refused.
func testVerifyRoom(t *testing.T, s *setting) {
	for _, mode := range []int{gpurdma.VerifyAll, gpurdma.VerifySampled} {
		p := s.pairWith(t, gpurdma.Config{Verify: mode, MessageSize: 600}, gpurdma.Config{})
		mine, _, remote := p.both(100_000)
		refused := func(err, want error, word string) {
			t.Helper()
			if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), word) {
				t.Errorf("%v", err)
			}
		}
		ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify(make([]byte, 88))))
		p.noted(string(make([]byte, 88)))
		refused(p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify(make([]byte, 89))), gpurdma.ErrLimit, "MessageSize")
		ok(t, p.client.Write(limited(t), remote.Range(0, 0), mine.Range(0, 0), gpurdma.Notify(make([]byte, 600)))) // nothing to sum
		p.noted(string(make([]byte, 600)))
		ok(t, p.client.Write(limited(t), remote, mine.All()))

		var extents []gpurdma.Extent
		for i := range int64(200) {
			extents = append(extents, gpurdma.Extent{Off: 400*i + i%7*10, Len: 100 + i%5})
		}
		long := gpurdma.SG(extents...)
		refused(p.client.Write(limited(t), remote.View(long), mine.Range(0, long.Size()), gpurdma.Notify(nil)), gpurdma.ErrLimit, "shorter layout")
		twice := gpurdma.Interleaved(gpurdma.Extent{Len: 60_000}, gpurdma.Dim{Count: 2, Stride: 0})
		refused(p.client.Write(limited(t), remote.View(twice), mine.Range(0, 1).Range(0, 1), gpurdma.Notify(nil)), gpurdma.ErrRange, "bytes here")
		big := host(t, p.a, twice.Size())
		if err := p.client.Write(limited(t), remote.View(twice), big.All(), gpurdma.Notify(nil)); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%v", err)
		}
		p.alive()
		ok(t, p.ln.Close())
	}
	for _, cfg := range []gpurdma.Config{{Verify: 3}, {Verify: -1}, {Verify: gpurdma.VerifyAll, MessageSize: 511}} {
		if ln, err := s.fabric(t).Listen(s.listen, cfg); !errors.Is(err, gpurdma.ErrRange) {
			t.Errorf("%+v: %v", cfg, err)
			if err == nil {
				_ = ln.Close()
			}
		}
	}
}

// quiet makes verified writes of random sizes, of a number of MiB in all, which give no alarm.
func (s *setting) quiet(t *testing.T, most int) {
	total, size := int64(most)<<20, int64(8<<20)
	if s.net == nil { // a software NIC of an emulated machine
		size = 1 << 20
	}
	for _, mode := range []int{gpurdma.VerifyAll, gpurdma.VerifySampled} {
		p, r := s.pairWith(t, gpurdma.Config{Verify: mode}, gpurdma.Config{}), testenv.Seeded(t)
		p.allUp(len(s.nics))
		var remotes []gpurdma.Remote
		var mine []*gpurdma.Buffer
		for _, k := range s.kinds {
			mine = append(mine, k.alloc(t, p.a, size))
			fill(t, r, mine[len(mine)-1])
			remotes = append(remotes, p.export(k.alloc(t, p.b, size).All(), gpurdma.ReadWrite))
		}
		moved := int64(0)
		for moved < total/2 {
			n := 1 + r.Int64N(size)
			from, to := mine[r.IntN(len(mine))].Range(r.Int64N(size-n+1), n), remotes[r.IntN(len(remotes))].Range(r.Int64N(size-n+1), n)
			ok(t, p.client.Write(limited(t), to, from, gpurdma.Notify([]byte("quiet"))))
			p.noted("quiet")
			moved += n
		}
		st := p.server.Stats()
		if st.Corrupt != 0 || mode == gpurdma.VerifyAll && st.Checked == 0 {
			t.Errorf("%d blocks were compared, %d differ", st.Checked, st.Corrupt)
		}
		t.Logf("mode %d: %d MiB, %d blocks were compared", mode, moved>>20, st.Checked)
		ok(t, p.ln.Close())
	}
}
