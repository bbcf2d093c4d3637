// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// watchAtomics fails the test if two NICs carry out atomics at once. It returns the NIC of the last one.
func (s *setting) watchAtomics(t *testing.T) (last func() string) {
	var mu sync.Mutex
	under, at := map[string]int{}, ""
	s.net.OnAtomic(func(op fabrictest.AtomicOp) {
		nic := op.At.Name()
		mu.Lock()
		at = nic
		for other, n := range under {
			if other != nic && n > 0 {
				t.Errorf("an atomic over %s while another is under way over %s", nic, other)
			}
		}
		under[nic]++
		mu.Unlock()
		time.Sleep(20 * time.Microsecond)
		mu.Lock()
		under[nic]--
		mu.Unlock()
	})
	t.Cleanup(func() { s.net.OnAtomic(nil) })
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
}

// The atomics of all peers go over one NIC. When the link of one peer to that NIC is lost, they all go over
// another one, and none is lost or carried out twice.
func TestRailsAtomicsMove(t *testing.T) {
	r := testenv.Seeded(t)
	s, p := overRails(t, fabrictest.Options{}, gpurdma.Config{PeerTimeout: 10 * time.Second})
	last := s.watchAtomics(t)
	pairs := []*pair{p}
	for i := range 3 {
		q := &pair{t: t, a: p.a, b: p.b, ln: p.ln, names: 100 * (i + 1)}
		if i > 0 {
			q.a = s.fabric(t)
		}
		q.client, q.server = q.connect(gpurdma.Config{PeerTimeout: 10 * time.Second})
		q.allUp(len(s.nics))
		pairs = append(pairs, q)
	}
	word := host(t, p.b, 64)
	l := gpurdma.Interleaved(gpurdma.Extent{Len: 16}, gpurdma.Dim{Count: 1, Stride: 16})
	var known, unknown atomic.Int64
	var olds sync.Map
	var tasks sync.WaitGroup
	over := make(chan struct{})
	for i, q := range pairs {
		counter := q.export(word.All(), all)
		if i%2 == 0 {
			counter = counter.View(l)
		}
		tasks.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				old, err := q.client.FetchAdd(limited(t), counter.Range(8, 8), 1)
				switch {
				case errors.Is(err, gpurdma.ErrOutcomeUnknown):
					unknown.Add(1)
				case err != nil:
					t.Errorf("connection %d: %v", i, err)
					return
				default:
					known.Add(1)
					if _, twice := olds.LoadOrStore(old, i); twice {
						t.Errorf("two atomics have found %d", old)
					}
				}
			}
		})
	}
	adds := func(n int64) {
		t.Helper()
		for start, ctx := known.Load(), limited(t); known.Load() < start+n && !t.Failed(); time.Sleep(time.Millisecond) {
			ok(t, ctx.Err())
		}
	}
	adds(20)
	moves := 0
	for range testenv.Soak(4, 100) {
		was := last()
		victim := pairs[r.IntN(len(pairs))]
		here, there := s.net.NIC(victim.a, was), s.net.NIC(p.b, was)
		switch r.IntN(4) {
		case 0: // an atomic is carried out, and its answer is lost
			there.LoseAnswers(here, true)
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			here.SetPort(false)
			there.LoseAnswers(here, false)
		case 1:
			there.SetPort(false)
		case 2:
			here.SetPort(false)
		default:
			here.Cut(there)
		}
		for ctx := limited(t); last() == was && !t.Failed(); time.Sleep(time.Millisecond) {
			ok(t, ctx.Err())
		}
		moves++
		adds(40)
		here.SetPort(true)
		there.SetPort(true)
		here.Mend(there)
		for _, q := range pairs {
			q.allUp(len(s.nics))
		}
	}
	close(over)
	tasks.Wait()
	got := must(p.client.FetchAdd(limited(t), p.export(word.All(), all).Range(8, 8), 0))(t)
	if k, u := uint64(known.Load()), uint64(unknown.Load()); got < k || got > k+u {
		t.Errorf("the word is %d after %d atomics, and %d whose outcome is not known", got, k, u)
	}
	t.Logf("%d moves, %d atomics, and %d whose outcome is not known", moves, known.Load(), unknown.Load())
	for _, q := range pairs {
		ok(t, q.client.Close())
		gone(t, q.server)
	}
}

// A peer without a rail to the NIC over which all atomics on a memory go is not given atomics, and the
// error names the NIC. When no peer has atomics on the memory any more, the NIC of the next peer takes them.
func TestRailsAtomicsOneNIC(t *testing.T) {
	_, p := overRails(t, fabrictest.Options{}, gpurdma.Config{})
	word := host(t, p.b, 64)
	remote := p.export(word.All(), all)
	must(p.client.FetchAdd(limited(t), remote.Range(0, 8), 1))(t)

	one := gpurdma.Config{NIC: "mem2"}
	q := &pair{t: t, a: p.a, b: p.b, ln: must(p.b.Listen("127.0.0.1:0", one))(t), names: 100}
	q.client, q.server = q.connect(one)
	err := q.server.Export("memory", word.All(), all)
	if !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), "mem0") {
		t.Fatalf("atomics over two NICs: %v", err)
	}
	ok(t, q.server.Export("memory", word.All(), gpurdma.ReadWrite)) // the name is free
	ok(t, q.server.Unexport("memory"))

	ok(t, p.server.Unexport("memory 1"))
	if _, err := p.client.FetchAdd(soon(t), remote.Range(0, 8), 1); err == nil {
		t.Error("an atomic on memory that is not exported any more")
	}
	second := q.export(word.All(), all)
	if old := must(q.client.FetchAdd(limited(t), second.Range(0, 8), 1))(t); old != 1 {
		t.Errorf("the word was %d", old)
	}
	if err := p.server.Export("again", word.All(), all); err != nil { // over the NIC that both have
		t.Error(err)
	}
	again := must(p.client.Import(limited(t), "again"))(t)
	if old := must(p.client.FetchAdd(limited(t), again.Range(0, 8), 1))(t); old != 2 {
		t.Errorf("the word was %d", old)
	}
	for _, x := range []*pair{p, q} {
		ok(t, x.client.Close())
		gone(t, x.server)
	}
	ok(t, q.ln.Close())
}

// tryAdd carries out an atomic whose outcome may not be known, because its link is lost meanwhile.
func tryAdd(t *testing.T, c *gpurdma.Conn, r gpurdma.Remote) {
	t.Helper()
	if _, err := c.FetchAdd(limited(t), r, 1); err != nil && !errors.Is(err, gpurdma.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
}

// A name that is taken is refused, and atomics on the memory that has it go on.
func TestRailsAtomicsNameTaken(t *testing.T) {
	_, p := overRails(t, fabrictest.Options{}, gpurdma.Config{})
	word := host(t, p.b, 64)
	remote := p.export(word.All(), all)
	must(p.client.FetchAdd(limited(t), remote.Range(0, 8), 1))(t)
	for _, b := range []*gpurdma.Buffer{word, host(t, p.b, 64)} {
		if err := p.server.Export("memory 1", b.All(), all); !errors.Is(err, unix.EEXIST) {
			t.Errorf("the name was given twice: %v", err)
		}
	}
	if old := must(p.client.FetchAdd(limited(t), remote.Range(0, 8), 1))(t); old != 1 {
		t.Errorf("the word was %d", old)
	}
	ok(t, p.server.Unexport("memory 1"))
	again := p.export(word.All(), all)
	if old := must(p.client.FetchAdd(limited(t), again.Range(0, 8), 1))(t); old != 2 {
		t.Errorf("the word was %d", old)
	}
}

// A descriptor of Share has keys for atomics over the NIC of all peers' atomics, or is not made.
func TestRailsAtomicsShare(t *testing.T) {
	s, p := overRails(t, fabrictest.Options{}, gpurdma.Config{})
	last := s.watchAtomics(t)
	word := host(t, p.b, 64)
	remote := p.export(word.All(), all)
	here := s.net.NIC(p.a, "mem0")
	here.SetPort(false)
	for ctx := limited(t); last() != "mem1" && last() != "mem2"; {
		ok(t, ctx.Err())
		tryAdd(t, p.client, remote.Range(0, 8))
	}
	home := last()
	here.SetPort(true)
	p.allUp(len(s.nics))
	q := &pair{t: t, a: s.fabric(t), b: p.b, ln: p.ln, names: 100}
	s.net.NIC(q.a, home).SetPort(false)
	q.client, q.server = q.connect(gpurdma.Config{})
	if _, err := q.server.Share(word.All(), all); !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), home) {
		t.Errorf("a descriptor without a rail to %s: %v", home, err)
	}
	s.net.NIC(q.a, home).SetPort(true)
	q.allUp(len(s.nics))
	given := must(must(q.server.Share(word.All(), all))(t).MarshalBinary())(t)
	var decoded gpurdma.Remote
	ok(t, decoded.UnmarshalBinary(given))
	must(q.client.FetchAdd(limited(t), decoded.Range(0, 8), 1))(t)
	if last() != home {
		t.Errorf("an atomic by a descriptor went over %s, and all others over %s", last(), home)
	}
	// A descriptor of a peer's memory loses its keys for atomics when the program encodes it.
	var copied gpurdma.Remote
	ok(t, copied.UnmarshalBinary(must(remote.MarshalBinary())(t)))
	if _, err := p.client.FetchAdd(limited(t), copied.Range(0, 8), 1); !errors.Is(err, unix.EACCES) {
		t.Errorf("an atomic by a copy of a descriptor: %v", err)
	}
	ok(t, p.client.Write(limited(t), copied.Range(8, 8), host(t, p.a, 8).All()))
	for _, x := range []*pair{p, q} {
		ok(t, x.client.Close())
		gone(t, x.server)
	}
}

// Atomics wait for a move for much less than the shortest PeerTimeout, those that wait behind messages
// among them, and a peer's trouble does not hold up exports to another one.
func TestRailsAtomicsSoon(t *testing.T) {
	cfg := gpurdma.Config{PeerTimeout: time.Second, Messages: 2}
	s, p := overRails(t, fabrictest.Options{}, cfg)
	last := s.watchAtomics(t)
	q := &pair{t: t, a: s.fabric(t), b: p.b, ln: p.ln, names: 100}
	q.client, q.server = q.connect(cfg)
	q.allUp(len(s.nics))
	word := host(t, p.b, 64)
	r1, r2 := p.export(word.All(), all).Range(0, 8), q.export(word.All(), all).Range(0, 8)
	must(p.client.FetchAdd(limited(t), r1, 1))(t)
	must(q.client.FetchAdd(limited(t), r2, 1))(t)
	for range cfg.Messages { // the program of the server takes none
		ok(t, q.client.Send(limited(t), []byte("m")))
	}
	stuck := must(q.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpSend, Inline: []byte("m")}))(t)
	behind := must(q.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpFetchAdd, Remote: r2, Add: 1 << 32}))(t)
	after := must(q.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpSend, Inline: []byte("after")}))(t)
	here := s.net.NIC(p.a, "mem0")
	here.SetPort(false)
	for ctx := limited(t); last() == "mem0"; time.Sleep(time.Millisecond) {
		ok(t, ctx.Err())
		tryAdd(t, p.client, r1)
	}
	for i := range 20 {
		ok(t, q.server.Export(strings.Repeat("x", i+1), host(t, p.b, 8).All(), all))
	}
	for range cfg.Messages + 1 {
		must(q.server.Receive(limited(t)))(t)
	}
	if m := must(q.server.Receive(limited(t)))(t); string(m) != "after" || content(t, word)[4] != 1 {
		t.Errorf("%q has come before the atomic that was posted before it", m)
	}
	for _, x := range []*gpurdma.Transfer{stuck, behind, after} {
		ok(t, limitedDone(t, x))
	}
	for _, r := range q.client.Rails() {
		if r.Lost > 0 {
			t.Errorf("%v has lost its link", r)
		}
	}
	here.SetPort(true)
	for _, x := range []*pair{p, q} {
		ok(t, x.client.Close())
		gone(t, x.server)
	}
}

// A peer that does not answer holds up the atomics of another one, and exports of the same memory, for much
// less than their patience. A failed Export leaves no keys.
func TestRailsAtomicsSilentPeer(t *testing.T) {
	cfg := gpurdma.Config{PeerTimeout: 2 * time.Second}
	s, p := overRails(t, fabrictest.Options{}, cfg)
	last := s.watchAtomics(t)
	q := &pair{t: t, a: s.fabric(t), b: p.b, ln: p.ln, names: 100}
	q.client, q.server = q.connect(gpurdma.Config{PeerTimeout: 20 * time.Second})
	q.allUp(len(s.nics))
	word := host(t, p.b, 64)
	r1, r2 := p.export(word.All(), all).Range(0, 8), q.export(word.All(), all).Range(0, 8)
	must(p.client.FetchAdd(limited(t), r1, 1))(t)
	must(q.client.FetchAdd(limited(t), r2, 1))(t)
	s.net.CutExchanges(fabrictest.Silent, q.a)
	here := s.net.NIC(p.a, "mem0")
	here.SetPort(false)
	for ctx := limited(t); last() == "mem0"; time.Sleep(time.Millisecond) {
		ok(t, ctx.Err())
		tryAdd(t, p.client, r1)
	}
	s.net.MendExchanges()
	here.SetPort(true)
	p.allUp(len(s.nics))
	q.allUp(len(s.nics))
	must(q.client.FetchAdd(limited(t), r2, 1))(t)

	// Export without the first rail fails, and leaves nothing behind.
	here.SetPort(false)
	for ctx := limited(t); p.server.Rails()[0].Up; time.Sleep(time.Millisecond) {
		ok(t, ctx.Err())
	}
	if err := p.server.Export("again", word.All(), all); err == nil {
		t.Fatal("exported without the first rail")
	}
	here.SetPort(true)
	p.allUp(len(s.nics))
	ok(t, p.server.Export("again", word.All(), all))
	again := must(p.client.Import(limited(t), "again"))(t)
	must(p.client.FetchAdd(limited(t), again.Range(0, 8), 1))(t)
	was := last()
	s.net.NIC(p.a, was).SetPort(false)
	for ctx := limited(t); last() == was; time.Sleep(time.Millisecond) {
		ok(t, ctx.Err())
		tryAdd(t, p.client, again.Range(0, 8))
	}
	s.net.NIC(p.a, was).SetPort(true)
	for _, x := range []*pair{p, q} {
		ok(t, x.client.Close())
		gone(t, x.server)
	}
}
