// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// flipper makes bits of writes wrong.
type flipper struct {
	mu      sync.Mutex
	r       *rand.Rand
	armed   bool
	flipped int
}

func (f *flipper) flip(p fabrictest.Placement) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed || f.r.IntN(3) == 0 { // one of the parts of a write
		return -1
	}
	f.armed = false
	f.flipped++
	return f.r.Int64N(8 * int64(p.Size))
}

// arm makes one bit of the next write wrong, perhaps none, and returns how many were wrong before.
func (f *flipper) arm() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = true
	return f.flipped
}

// disarm returns how many bits were wrong.
func (f *flipper) disarm() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
	return f.flipped
}

// memories are the settings in memory: over one NIC and several, with bytes that arrive at once and
// late.
func memories(t *testing.T, run func(t *testing.T, s *setting)) {
	for name, opt := range map[string]fabrictest.Options{"at once": {}, "late": {HoldWrites: true}} {
		for _, nics := range [][]string{{"mem0"}, {"mem0", "mem1", "mem2"}} {
			t.Run(fmt.Sprintf("%s over %d", name, len(nics)), func(t *testing.T) {
				s := inMemory(t, opt)
				s.nics = nics
				run(t, s)
			})
		}
	}
}

// Of 10,000 bits that are wrong all are found with VerifyAll, in the block where they are, and nothing
// else is. (`make test` flips 2,500 in each of four settings.)
func TestVerifyCorruptions(t *testing.T) {
	memories(t, func(t *testing.T, s *setting) {
		p, r := s.pairWith(t, gpurdma.Config{Verify: gpurdma.VerifyAll}, gpurdma.Config{}), testenv.Seeded(t)
		p.allUp(len(s.nics))
		const size = 1 << 20
		mine := host(t, p.a, size)
		sent := fill(t, r, mine)
		var theirs []*gpurdma.Buffer
		var remotes []gpurdma.Remote
		for _, k := range s.kinds {
			b := k.alloc(t, p.b, size)
			theirs, remotes = append(theirs, b), append(remotes, p.export(b.All(), gpurdma.ReadWrite))
		}
		f := &flipper{r: r}
		s.net.OnCorrupt(f.flip)
		wanted, found := testenv.Soak(2500, 10_000), 0
		for f.disarm() < wanted {
			i, n := r.IntN(len(theirs)), 1+r.Int64N(4000)
			switch r.IntN(20) {
			case 0: // is cut
				n = 256<<10 + r.Int64N(size-256<<10)
			case 1, 2:
				n = 1 + r.Int64N(200<<10)
			}
			from, to := r.Int64N(size-n+1), r.Int64N(size-n+1)
			before := f.arm()
			ok(t, p.client.Write(limited(t), remotes[i].Range(to, n), mine.Range(from, n), gpurdma.Notify([]byte("note"))))
			note, err := p.server.ReceiveNotification(limited(t))
			wrong := f.disarm() > before
			if string(note) != "note" || wrong != errors.Is(err, gpurdma.ErrCorrupt) || !wrong && err != nil {
				t.Fatalf("%d bytes, wrong: %v; %q, %v", n, wrong, note, err)
			}
			if !wrong {
				continue
			}
			found++
			var x *gpurdma.CorruptError
			if !errors.As(err, &x) || x.At != to+x.Off || x.Len > n-x.Off || x.Blocks != 1 {
				t.Fatalf("%d bytes at %d: %+v", n, to, x)
			}
			got := make([]byte, n)
			must(theirs[i].ReadAt(got, to))(t)
			at := int64(firstDifference(got, sent[from:from+n]))
			if at < x.Off || at >= x.Off+x.Len || !bytes.Equal(got[at+1:], sent[from+at+1:from+n]) {
				t.Fatalf("byte %d is wrong, and the block is %+v", at, x)
			}
		}
		if st := p.server.Stats(); found != f.disarm() || st.Corrupt != uint64(found) {
			t.Errorf("%d of %d bits were found, %d are counted", found, f.disarm(), st.Corrupt)
		}
	})
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// With VerifySampled about one wrong block in a hundred is found.
func TestVerifySampledFinds(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	p, r := s.pairWith(t, gpurdma.Config{Verify: gpurdma.VerifySampled}, gpurdma.Config{}), testenv.Seeded(t)
	mine, _, remote := p.both(64)
	fill(t, r, mine)
	s.net.OnCorrupt(func(p fabrictest.Placement) int64 { return r.Int64N(8 * int64(p.Size)) })
	const writes = 20_000
	found := 0
	for range writes {
		ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify(nil)))
		if _, err := p.server.ReceiveNotification(limited(t)); errors.Is(err, gpurdma.ErrCorrupt) {
			found++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if found < writes/200 || found > writes/60 {
		t.Errorf("%d of %d were found", found, writes)
	}
	if st := p.server.Stats(); st.Checked != uint64(found) || st.Corrupt != uint64(found) {
		t.Errorf("%d blocks were compared, %d differ", st.Checked, st.Corrupt)
	}
}

// Verified writes of random sizes give no alarm: 400 MB, in a soak 100 GB.
func TestVerifyQuiet(t *testing.T) {
	memories(t, func(t *testing.T, s *setting) { s.quiet(t, testenv.Soak(100, 25_000)) })
}

// Links are lost under verified writes, which give no alarm.
func TestRailsVerify(t *testing.T) {
	for name, opt := range map[string]fabrictest.Options{"at once": {}, "late": {HoldWrites: true}} {
		for n := range 2 {
			t.Run(fmt.Sprintf("%s over %d", name, 1+2*n), func(t *testing.T) {
				s := inMemory(t, opt)
				s.nics = []string{"mem0", "mem1", "mem2"}[:1+2*n]
				cfg := gpurdma.Config{PeerTimeout: 2 * time.Second, Verify: gpurdma.VerifyAll, Outlive: true}
				p := s.pairWith(t, cfg, cfg)
				p.allUp(len(s.nics))
				s.flap(p)
			})
		}
	}
}

// flap makes NICs fail while verified writes go on.
func (s *setting) flap(p *pair) {
	t := p.t
	r := testenv.Seeded(t)
	const size = 2 << 20
	mine, theirs, remote := p.both(size)
	sent := fill(t, r, mine)
	flaps, done := testenv.Soak(6, 300), make(chan struct{})
	go func() {
		defer close(done)
		for range flaps {
			nic := s.nics[rand.IntN(len(s.nics))]
			mend := s.portDown(p, nic)
			if len(s.nics) == 1 { // a port that is down does not end the only link
				mend()
				s.net.CutExchanges(fabrictest.Reset)
				mend = s.net.MendExchanges
			}
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			mend()
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		}
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		n := 1 + r.Int64N(size)
		from, to := r.Int64N(size-n+1), r.Int64N(size-n+1)
		open := func() {}
		if r.IntN(4) == 0 { // summed late
			open = gated(t, mine)
		}
		x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.Range(from, n), Remote: remote.Range(to, n), Notify: true, Note: []byte("flap"), Fence: r.IntN(4) == 0}))(t)
		open()
		mine.SetReady(nil)
		p.noted("flap")
		got := make([]byte, n)
		must(theirs.ReadAt(got, to))(t)
		if !bytes.Equal(got, sent[from:from+n]) {
			t.Fatal("other bytes")
		}
		ok(t, limitedDone(t, x))
	}
	if st := p.server.Stats(); st.Corrupt != 0 || st.Checked == 0 {
		t.Errorf("%d blocks were compared, %d differ", st.Checked, st.Corrupt)
	}
	p.allUp(len(s.nics))
	lost := 0
	for _, rail := range p.client.Rails() {
		lost += rail.Lost
	}
	if lost == 0 {
		t.Error("no link was lost")
	}
	t.Log(lost, "links were lost,", p.client.Stats().Repeats, "repeats")
}
