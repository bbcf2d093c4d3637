// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// overRails returns a pair of machines with several NICs, when all rails of its connection are up.
func overRails(t *testing.T, opt fabrictest.Options, cfg gpurdma.Config) (*setting, *pair) {
	s := inMemory(t, opt)
	s.nics = []string{"mem0", "mem1", "mem2"}
	p := s.pairWith(t, cfg, cfg)
	p.allUp(len(s.nics))
	return s, p
}

// allUp waits until a number of rails are up.
func (p *pair) allUp(n int) {
	p.t.Helper()
	for _, c := range []*gpurdma.Conn{p.client, p.server} {
		for ctx := limited(p.t); ; time.Sleep(time.Millisecond) {
			up := 0
			for _, r := range c.Rails() {
				if r.Up {
					up++
				}
			}
			if up == n {
				break
			}
			if ctx.Err() != nil {
				p.t.Fatalf("%d rails are up: %+v", up, c.Rails())
			}
		}
	}
}

// overAll writes until all rails have carried bytes: the export has come over all of them then.
func (p *pair) overAll(remote gpurdma.Remote, mine gpurdma.Span, rails int) {
	p.t.Helper()
	for used := 0; used < rails; {
		ok(p.t, p.client.Write(limited(p.t), remote, mine, gpurdma.Delivered()))
		used = 0
		for _, s := range p.client.Stats().ByNIC {
			if s.Bytes >= 1<<10 {
				used++
			}
		}
	}
}

// someUp waits until a rail is up on both sides.
func (p *pair) someUp() {
	up := func(c *gpurdma.Conn) bool {
		return slices.ContainsFunc(c.Rails(), func(r gpurdma.Rail) bool { return r.Up })
	}
	for ctx := limited(p.t); ctx.Err() == nil && !(up(p.client) && up(p.server)); time.Sleep(time.Millisecond) {
	}
}

// cutRail cuts the path of a rail.
func (s *setting) cutRail(p *pair, nic string) (mend func()) {
	here, there := s.net.NIC(p.a, nic), s.net.NIC(p.b, nic)
	here.Cut(there)
	return func() { here.Mend(there) }
}

// portDown takes the port of a rail down, on one side.
func (s *setting) portDown(p *pair, nic string) (mend func()) {
	n := s.net.NIC(p.a, nic)
	n.SetPort(false)
	return func() { n.SetPort(true) }
}

// Rails lose their links, one after the other, under writes that overlap one another, notifications
// and messages: nothing is lost, carried out twice or late.
func TestRailsFailOver(t *testing.T) {
	for _, x := range []struct {
		name    string
		opt     fabrictest.Options
		nics    []string // that reach the memory; nil for all
		order   int
		timeout time.Duration
	}{
		{"at once", fabrictest.Options{}, nil, 0, 2 * time.Second},
		{"late", fabrictest.Options{HoldWrites: true}, nil, 0, 2 * time.Second},
		{"not the first", fabrictest.Options{HoldWrites: true}, []string{"mem1", "mem2"}, gpurdma.OrderWrites, 10 * time.Second},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := testenv.Seeded(t)
			s, p := overRails(t, x.opt, gpurdma.Config{PeerTimeout: x.timeout, Ordering: x.order})
			p.memory = func(size int64) (mine, theirs *gpurdma.Buffer) {
				return reachedBy(t, p.a, size, x.nics...), reachedBy(t, p.b, size, x.nics...)
			}
			flaps := testenv.Soak(5, 500)
			done := make(chan struct{})
			flap := func() {
				defer close(done)
				for i := 0; i < flaps && p.client.Err() == nil; i++ {
					nics := slices.Clone(s.nics)
					r.Shuffle(len(nics), func(i, k int) { nics[i], nics[k] = nics[k], nics[i] })
					nics = nics[:1+r.IntN(len(nics))]
					var mend []func()
					longest := 1000 // milliseconds
					for _, nic := range nics {
						cut := s.portDown
						if len(nics) < len(s.nics) && r.IntN(4) == 0 {
							cut, longest = s.cutRail, 3000 // the NIC waits for an answer for PeerTimeout
						}
						mend = append(mend, cut(p, nic))
						time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
					}
					time.Sleep(time.Duration(r.IntN(longest)) * time.Millisecond)
					for _, m := range mend {
						m()
						time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
					}
					p.someUp()
				}
			}
			defer func() { <-done }()
			p.overlaps(2<<20, 600<<10, func() { go flap() }, func(int) bool {
				select {
				case <-done:
					return false
				default:
					return true
				}
			})
			p.allUp(len(s.nics))
			lost := 0
			for _, rail := range p.client.Rails() {
				lost += rail.Lost
			}
			if lost == 0 {
				t.Error("no rail has lost its link")
			}
			t.Log(fmt.Sprint(lost, " links were lost"), p.client.Stats().Repeats)
			ok(t, p.client.Close())
			gone(t, p.server)
		})
	}
}

// A notification comes after those of earlier writes, also if its write follows a small one over the
// small one's rail, while an earlier one is cut.
func TestRailsNotificationsInOrder(t *testing.T) {
	_, p := overRails(t, fabrictest.Options{HoldWrites: true}, gpurdma.Config{})
	mine, _, remote := p.both(2 << 20)
	for range 50 {
		b := p.client.Batch()
		b.Write(remote.Range(0, 1<<20), mine.Range(0, 1<<20), gpurdma.Notify([]byte("first")))
		b.Write(remote.Range(1<<20, 100), mine.Range(1<<20, 100))
		b.Write(remote.Range(1<<20, 300<<10), mine.Range(1<<20, 300<<10), gpurdma.Notify([]byte("second")))
		ok(t, b.Do(limited(t)))
		for _, want := range []string{"first", "second"} {
			if note := must(p.server.ReceiveNotification(limited(t)))(t); string(note) != want {
				t.Fatalf("%q, want %q", note, want)
			}
		}
	}
}

// A write that is kept in the network while another rail takes over does not land any more, over
// newer bytes.
func TestRailsLatePacket(t *testing.T) {
	s, p := overRails(t, fabrictest.Options{}, gpurdma.Config{PeerTimeout: 300 * time.Millisecond})
	mine, theirs, remote := p.both(8)
	for i := range testenv.Soak(8, 100) {
		before, after := fmt.Appendf(nil, "first%03d", i), fmt.Appendf(nil, "newer%03d", i)
		put(t, mine, before)
		x, held := s.keepWrite(p, mine, remote)
		ok(t, limitedDone(t, x))
		put(t, mine, after)
		ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Delivered()))
		here, there := s.net.NIC(p.a, held), s.net.NIC(p.b, held)
		_, _, dropped := s.net.Late()
		here.Hold(there, false)
		if _, _, now := s.net.Late(); now == dropped { // what tries another link may land
			t.Error("no late operation was dropped")
		}
		same(t, "after the late packet", theirs, after)
		p.allUp(len(s.nics))
	}
}

// keepWrite starts a write that stays in the network, and returns the NIC over which it goes.
func (s *setting) keepWrite(p *pair, mine *gpurdma.Buffer, remote gpurdma.Remote) (*gpurdma.Transfer, string) {
	hold := func(nic string, held bool) { s.net.NIC(p.a, nic).Hold(s.net.NIC(p.b, nic), held) }
	kept := func() int { n, _, _ := s.net.Late(); return n }
	return p.keepWrite(s.nics, hold, kept, mine, remote)
}

// keepWrite does so in any network: hold lets it keep what goes over a NIC, and kept counts.
func (p *pair) keepWrite(nics []string, hold func(nic string, held bool), kept func() int, mine *gpurdma.Buffer, remote gpurdma.Remote) (*gpurdma.Transfer, string) {
	for _, nic := range nics {
		before := kept()
		hold(nic, true)
		x := must(p.client.Start(limited(p.t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}))(p.t)
		for ctx := limited(p.t); ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if kept() > before {
				return x, nic
			}
			select {
			case <-x.Done(): // over another rail
				ok(p.t, x.Err())
			default:
				continue
			}
			break
		}
		hold(nic, false)
	}
	p.t.Fatal("no write stays in the network")
	return nil, ""
}

// limitedDone waits until a transfer is done, and returns its error.
func limitedDone(t testing.TB, x *gpurdma.Transfer) error {
	select {
	case <-x.Done():
	case <-limited(t).Done():
		t.Fatal("a transfer does not end")
	}
	return x.Err()
}

// A rail that was slow for a while gets bytes again, of operations that are so small that it got none while it
// counted as slow.
func TestRailsSlowForAWhile(t *testing.T) {
	s, p := overRails(t, fabrictest.Options{}, gpurdma.Config{})
	mine, _, remote := p.both(1 << 20)
	p.overAll(remote, mine.All(), len(s.nics))
	write := func() { ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Delivered())) }
	bytes := func() int64 { return p.client.Stats().ByNIC["mem1"].Bytes }
	nic := s.net.NIC(p.a, "mem1")
	nic.SetRate(512<<10, 0)
	for ctx, without := limited(t), 0; without < 5; { // writes in a row without it
		was := bytes()
		if write(); bytes() == was {
			without++
		} else {
			without = 0
		}
		ok(t, ctx.Err())
	}
	nic.SetRate(0, 0)
	// It is measured by one small slice of each write.
	for ctx, with := limited(t), 0; with < 5; {
		was := bytes()
		if write(); bytes() > was+100<<10 {
			with++
		}
		ok(t, ctx.Err())
	}
}

// A Fabric of several NICs connects to itself.
func TestRailsOfOneFabric(t *testing.T) {
	s := inMemory(t, fabrictest.Options{HoldWrites: true})
	s.nics = []string{"mem0", "mem1"}
	f := s.fabric(t)
	p := &pair{t: t, a: f, b: f}
	p.ln = must(f.Listen(s.listen, gpurdma.Config{}))(t)
	p.client, p.server = p.connect(gpurdma.Config{})
	p.allUp(2)
	p.overlaps(1<<20, 600<<10, nil, func(round int) bool { return round < 4 })
	p.alive()
	ok(t, p.client.Close())
}

// The sides have different numbers of NICs: every NIC has a rail.
func TestRailsOfUnequalMachines(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	few := must(s.net.Open("mem0"))(t)
	t.Cleanup(func() { ok(t, few.Close()) })
	s.nics = []string{"mem0", "mem1", "mem2"}
	many := s.fabric(t)
	for _, x := range [][2]*gpurdma.Fabric{{few, many}, {many, few}} {
		cfg := gpurdma.Config{Outlive: true}
		p := &pair{t: t, a: x[0], b: x[1], ln: must(x[1].Listen(s.listen, cfg))(t)}
		p.client, p.server = p.connect(cfg)
		p.allUp(3)
		p.overlaps(1<<20, 600<<10, nil, func(round int) bool { return round < 3 })
		ok(t, p.client.Close())
		gone(t, p.server)
		ok(t, p.ln.Close())
	}
}

// Events yields the rail that loses its link and gets another one, and ends with the connection.
func TestRailEvents(t *testing.T) {
	s, p := overRails(t, fabrictest.Options{}, gpurdma.Config{PeerTimeout: 2 * time.Second})
	mend := s.portDown(p, "mem1")
	lost := false
	for r, err := range p.client.Events(limited(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if r.NIC != "mem1" { // it was made
			continue
		}
		if !lost && r.Err != nil {
			if text := r.String(); r.Up || !strings.Contains(text, "down: mem1 reports: port error") {
				t.Errorf("%s", text)
			}
			lost = true
			mend()
		} else if lost && r.Up {
			break
		}
	}
	ok(t, p.client.Close())
	for _, err := range p.client.Events(limited(t)) {
		if err != nil {
			if !errors.Is(err, gpurdma.ErrClosed) {
				t.Error(err)
			}
			return
		}
	}
	t.Error("Events has ended without an error")
}

// An operation over several rails counts once, and its bytes are exact.
func TestRailsStats(t *testing.T) {
	_, p := overRails(t, fabrictest.Options{}, gpurdma.Config{})
	mine, _, remote := p.both(1 << 20)
	done, moved := uint64(0), int64(0)
	for i, n := range []int64{8, 300 << 10, 1 << 20, 4096, 700_001} {
		ok(t, p.client.Write(limited(t), remote.Range(0, n), mine.Range(0, n)))
		ok(t, p.client.Write(limited(t), remote.Range(0, n), mine.Range(0, n), gpurdma.Notify([]byte("n"))))
		must(p.server.ReceiveNotification(limited(t)))(t)
		ok(t, p.client.Read(limited(t), mine.Range(0, n), remote.Range(0, n)))
		done, moved = done+3, moved+3*n
		s := p.client.Stats()
		parts := int64(0)
		for _, one := range s.ByNIC {
			parts += one.Bytes
		}
		if s.Done != done || s.Bytes != moved || parts != moved || s.Failed != 0 || s.ByKind[gpurdma.OpRead].Done != uint64(i+1) {
			t.Errorf("%d bytes: %d operations of %d bytes, %d by NICs, %d failed; want %d of %d", n, s.Done, s.Bytes, parts, s.Failed, done, moved)
		}
	}
	if s := p.a.Stats(); s.Done != done || s.Bytes != moved {
		t.Errorf("of the fabric: %d operations of %d bytes", s.Done, s.Bytes)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.client.Write(gone, remote, mine.All()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Close ends while no rail passes packets. The peer may have confirmed over the exchange that nothing can
// land any more; otherwise the end of the operation is not known.
func TestRailsCloseCut(t *testing.T) {
	s, p := overRails(t, fabrictest.Options{}, gpurdma.Config{PeerTimeout: time.Second})
	mine, _, remote := p.both(1 << 20)
	var mend []func()
	for _, nic := range s.nics {
		mend = append(mend, s.cutRail(p, nic))
	}
	x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}))(t)
	if err := p.client.Close(); err != nil && !errors.Is(err, gpurdma.ErrOutcomeUnknown) {
		t.Error(err)
	}
	if err := limitedDone(t, x); !errors.Is(err, gpurdma.ErrClosed) {
		t.Error(err)
	}
	for _, m := range mend {
		m()
	}
	gone(t, p.server)
}

// An operation without room says that the peer's program takes no messages, if that is why, and one
// that waits for too long says which links are lost.
func TestRailsErrors(t *testing.T) {
	cfg := gpurdma.Config{Messages: 4, Depth: 8}
	s, p := overRails(t, fabrictest.Options{}, cfg)
	q := p.a.NewQueue(64)
	message := gpurdma.Op{Kind: gpurdma.OpSend, Inline: []byte("m")}
	posted := 0
	var full error
	for ctx := limited(t); full == nil || !strings.Contains(full.Error(), "Config.Messages"); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("after %d messages: %v", posted, full)
		}
		n, err := q.Post(p.client, []gpurdma.Op{message})
		posted += n
		if full = err; err != nil && !errors.Is(err, gpurdma.ErrQueueFull) {
			t.Fatal(err)
		}
	}
	if posted > cfg.Messages+cfg.Depth {
		t.Errorf("%d messages were taken", posted)
	}
	for range posted {
		must(p.server.Receive(limited(t)))(t)
	}
	ok(t, q.Close())
	p.alive()

	var mend []func()
	for _, nic := range s.nics {
		mend = append(mend, s.portDown(p, nic))
	}
	err := p.client.Send(soon(t), []byte("m"))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "3 of 3 links are lost") || !strings.Contains(err.Error(), "mem2") {
		t.Errorf("with all links lost: %v", err)
	}
	for _, m := range mend {
		m()
	}
	// If one side closed while the other waits for a link, the other one's Close would take PeerTimeout.
	p.allUp(len(s.nics))
}
