// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// reachedBy returns memory that the NICs of these names reach, and no others; all, without names.
func reachedBy(t testing.TB, f *gpurdma.Fabric, size int64, nics ...string) *gpurdma.Buffer {
	t.Helper()
	if len(nics) == 0 {
		return host(t, f, size)
	}
	mem := must(fabrictest.NewMemoryOf(size, nics...))(t)
	t.Cleanup(func() { ok(t, mem.Close()) })
	b := must(f.Register(limited(t), mem))(t)
	t.Cleanup(func() { ok(t, b.Close()) })
	return b
}

// Bytes go over rails whose NICs reach the memory on both sides, and nothing is staged.
func TestRailsReach(t *testing.T) {
	for _, x := range []struct{ mine, theirs, both []string }{
		{nil, []string{"mem1"}, []string{"mem1"}},
		{[]string{"mem2"}, nil, []string{"mem2"}},
		{[]string{"mem1", "mem2"}, []string{"mem0", "mem1"}, []string{"mem1"}},
		{[]string{"mem1", "mem2"}, []string{"mem1", "mem2"}, []string{"mem1", "mem2"}},
	} {
		t.Run(strings.Join(x.mine, ",")+" to "+strings.Join(x.theirs, ","), func(t *testing.T) {
			r := testenv.Seeded(t)
			_, p := overRails(t, fabrictest.Options{HoldWrites: true}, gpurdma.Config{})
			const size = 1 << 20
			p.memory = func(size int64) (mine, theirs *gpurdma.Buffer) {
				return reachedBy(t, p.a, size, x.mine...), reachedBy(t, p.b, size, x.theirs...)
			}
			mine, theirs, remote := p.both(size)
			for b, nics := range map[*gpurdma.Buffer][]string{mine: x.mine, theirs: x.theirs} {
				for _, path := range b.Paths() {
					reached := nics == nil || slices.Contains(nics, path.NIC)
					if path.Staged || (path.Route != "") != reached || (path.Reason == nil) != reached || strings.Contains(path.String(), "not reached by "+path.NIC) == reached {
						t.Errorf("%v: %v", nics, path)
					}
				}
				if nics != nil && b.Path().NIC != nics[0] {
					t.Errorf("%v: %v", nics, b.Path())
				}
			}
			want := fill(t, r, mine)
			ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify([]byte("n"))))
			must(p.server.ReceiveNotification(limited(t)))(t)
			same(t, "written", theirs, want)
			for i := range 64 {
				ok(t, p.client.Read(limited(t), mine.Range(int64(i)*8, 8), remote.Range(int64(64-i)*8, 8)))
			}
			if old := must(p.client.FetchAdd(limited(t), remote.Range(0, 8), 1))(t); old == 0 {
				t.Error(old)
			}
			ok(t, p.client.Write(limited(t), remote, mine.All()))
			p.overlaps(size, 600<<10, nil, func(round int) bool { return round < 4 })
			const much = 1 << 20
			few := func(nic string) bool { return p.client.Stats().ByNIC[nic].Bytes <= much }
			for ctx := limited(t); ctx.Err() == nil && slices.ContainsFunc(x.both, few); { // one may be slow for a while
				ok(t, p.client.Write(ctx, remote, mine.All()))
			}
			s := p.client.Stats()
			if s.Staged != 0 || p.a.Stats().Staged+p.b.Stats().Staged != 0 {
				t.Errorf("%d bytes were staged", s.Staged)
			}
			p.alive()
			for nic, s := range s.ByNIC {
				if (s.Bytes > much) != slices.Contains(x.both, nic) {
					t.Errorf("%s has carried %d bytes", nic, s.Bytes)
				}
			}
			ok(t, p.client.Close())
			gone(t, p.server)
		})
	}
}

// Memory that no rail reaches on both sides is an error that names what to do. A connection over one
// NIC that does not reach it says so at once.
func TestRailsReachNone(t *testing.T) {
	const size = 4096
	_, p := overRails(t, fabrictest.Options{}, gpurdma.Config{PeerTimeout: 300 * time.Millisecond})
	theirs := reachedBy(t, p.b, size, "mem1")
	remote := p.export(theirs.All(), all)
	refused := func(err error, words ...string) {
		t.Helper()
		if !errors.Is(err, unix.EOPNOTSUPP) {
			t.Fatal(err)
		}
		for _, w := range append(words, "StagedOnly") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v: no %q", err, w)
			}
		}
	}
	refused(p.client.Write(limited(t), remote, reachedBy(t, p.a, size, "mem2").All()), "no rail")
	p.alive()
	ok(t, p.client.Close())
	gone(t, p.server)

	one := gpurdma.Config{NIC: "mem2"}
	p.ln = must(p.b.Listen("127.0.0.1:7472", one))(t)
	p.client, p.server = p.connect(one)
	refused(p.server.Export("theirs", theirs.All(), all), "mem2")
	_, err := p.server.Share(theirs.All(), all)
	refused(err, "mem2")
	remote = p.export(host(t, p.b, size).All(), all)
	refused(p.client.Read(limited(t), reachedBy(t, p.a, size, "mem0", "mem1").All(), remote), "mem2")
	mem := must(fabrictest.NewMemoryOf(size, "mem0"))(t)
	staged := must(p.a.Register(limited(t), mem, gpurdma.StagedOnly()))(t)
	ok(t, p.client.Read(limited(t), staged.All(), remote))
	p.alive()
	ok(t, p.client.Close())
	gone(t, p.server)
}

// While the only rail that reaches memory has no link, operations on it wait, and others do not.
func TestRailsReachFailOver(t *testing.T) {
	s, p := overRails(t, fabrictest.Options{}, gpurdma.Config{PeerTimeout: 5 * time.Second})
	const size = 1 << 20
	theirs := reachedBy(t, p.b, size, "mem1")
	remote := p.export(theirs.All(), all)
	other := p.export(host(t, p.b, size).All(), all)
	mine := host(t, p.a, size)
	for range 3 {
		mend := s.portDown(p, "mem1")
		waits := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpRead, Local: mine.All(), Remote: remote}))(t)
		adds := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpFetchAdd, Remote: remote.Range(0, 8), Add: 1}))(t)
		ctx := soon(t)
		<-ctx.Done()
		select {
		case <-waits.Done():
			t.Fatal("it did not wait: ", waits.Err())
		default:
		}
		mend()
		ok(t, limitedDone(t, waits))
		ok(t, limitedDone(t, adds))
		ok(t, p.client.Write(limited(t), other, mine.All()))
		p.allUp(len(s.nics))
	}
	if n := p.client.Stats().ByNIC["mem0"]; n.Failed != 0 {
		t.Error(n)
	}
	ok(t, p.client.Close())
	gone(t, p.server)
}

// What follows writes that cannot be read back goes over their rail: memory that the peer may only be
// written to, that has several sources, or that the peer has withdrawn.
func TestRailsAfterUnreadable(t *testing.T) {
	for _, order := range []int{gpurdma.OrderOverlaps, gpurdma.OrderWrites} {
		for _, nics := range [][]string{nil, {"mem1"}} {
			_, p := overRails(t, fabrictest.Options{HoldWrites: true}, gpurdma.Config{Ordering: order})
			const size = 600 << 10
			mine := host(t, p.a, size)
			writable, withdrawn := reachedBy(t, p.b, size, nics...), reachedBy(t, p.b, size, nics...)
			two := []*gpurdma.Buffer{reachedBy(t, p.b, 64, nics...), reachedBy(t, p.b, 64, nics...)}
			view := gpurdma.View(gpurdma.SG(gpurdma.Extent{Len: 64}, gpurdma.Extent{Source: 1, Len: 64}), two...)
			other := p.export(host(t, p.b, size).All(), all)
			follow := func(what string) {
				t.Helper()
				p.alive()
				ok(t, p.client.Write(limited(t), gpurdma.Remote{}, gpurdma.Span{}, gpurdma.Notify([]byte(what))))
				if note := must(p.server.ReceiveNotification(limited(t)))(t); string(note) != what {
					t.Errorf("%q, want %q", note, what)
				}
				ok(t, p.client.Read(limited(t), mine.Range(0, 8), other.Range(0, 8), gpurdma.Fence()))
				ok(t, p.client.Write(limited(t), other, mine.All()))
			}
			want := fill(t, testenv.Seeded(t), mine)
			to := p.export(writable.All(), gpurdma.WriteOnly)
			for _, n := range []int64{64, size} {
				ok(t, p.client.Write(limited(t), to.Range(0, n), mine.Range(0, n)))
				follow("writable")
				put(t, mine, want)
			}
			same(t, "written", writable, want)

			pair := p.export(view, gpurdma.ReadWrite)
			ok(t, p.client.Write(limited(t), pair, mine.Range(0, 128)))
			ok(t, p.client.Read(limited(t), mine.Range(128, 128), pair))
			if got := content(t, mine); !slices.Equal(got[128:256], want[:128]) {
				t.Error("the bytes of a view are not read back")
			}
			follow("view")

			ok(t, p.server.Export("withdrawn", withdrawn.All(), gpurdma.ReadWrite))
			gone := must(p.client.Import(limited(t), "withdrawn"))(t)
			ok(t, p.client.Write(limited(t), gone.Range(0, 64), mine.Range(0, 64), gpurdma.Notify(nil)))
			must(p.server.ReceiveNotification(limited(t)))(t)
			ok(t, p.server.Unexport("withdrawn"))
			follow("withdrawn")
			for _, r := range p.client.Rails() {
				if r.Lost > 0 {
					t.Errorf("%v has lost a link", r)
				}
			}
			ok(t, p.client.Close())
			for ctx := limited(t); p.server.Err() == nil && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			}
			ok(t, p.server.Close())
		}
	}
}

// A write that was cut ends with an error when the rails that reach its memory have had no link for
// PeerTimeout, and another rail has one.
func TestRailsReachLost(t *testing.T) {
	const size = 2 << 20
	s, p := overRails(t, fabrictest.Options{}, gpurdma.Config{PeerTimeout: time.Second})
	remote := p.export(reachedBy(t, p.b, size, "mem1", "mem2").All(), all)
	mine := host(t, p.a, size)
	var mend []func()
	for _, nic := range []string{"mem1", "mem2"} {
		mend = append(mend, s.cutRail(p, nic))
	}
	x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}))(t)
	if err := limitedDone(t, x); err == nil || !strings.Contains(err.Error(), "can carry it") {
		t.Error(err)
	}
	p.alive()
	for _, m := range mend {
		m()
	}
	p.allUp(len(s.nics))
	ok(t, p.client.Write(limited(t), remote, mine.All()))
	ok(t, p.client.Close())
	gone(t, p.server)
}

// byNIC is a prover that has seen the memory of some NICs in system memory.
type byNIC map[string]bool

func (m byNIC) Prove(_ context.Context, key placement.Key) (placement.Placement, error) {
	if m[key.Device] {
		return placement.Placement{Memory: placement.SystemMemory}, nil
	}
	return placement.Placement{
		Memory: placement.PeerToPeer, Route: placement.BelowSwitch, Places: []placement.Place{{Kind: placement.KindBAR, Device: "0000:01:00.0"}},
	}, nil
}

// Bytes do not go over a rail whose NIC, on either side, was seen to reach a copy of the memory, as long as
// another rail has a link.
func TestRailsMoved(t *testing.T) {
	const size = 1 << 20
	for name, x := range map[string]struct{ mine, theirs byNIC }{
		"ours":   {mine: byNIC{"mem0": true}},
		"theirs": {theirs: byNIC{"mem0": true}},
		"both":   {mine: byNIC{"mem0": true}, theirs: byNIC{"mem1": true}},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := overRails(t, fabrictest.Options{}, gpurdma.Config{PeerTimeout: 10 * time.Second})
			gpu := func(f *gpurdma.Fabric, seen byNIC) *gpurdma.Buffer {
				b := must(f.Alloc(limited(t), "cuda:0", size))(t)
				t.Cleanup(func() { ok(t, b.Close()) })
				must(b.Prove(limited(t), seen))(t)
				return b
			}
			mine, theirs := gpu(p.a, x.mine), gpu(p.b, x.theirs)
			remote := p.export(theirs.All(), all)
			write := func() {
				t.Helper()
				ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Delivered()))
			}
			for p.client.Stats().ByNIC["mem2"].Bytes == 0 { // until the export has come over all rails
				write()
			}
			before := p.client.Stats().ByNIC
			note := func(n int64) {
				t.Helper()
				ok(t, p.client.Write(limited(t), remote.Range(0, n), mine.Range(0, n), gpurdma.Notify([]byte("n"))))
				must(p.server.ReceiveNotification(limited(t)))(t)
			}
			for range 4 {
				write()
				note(64)
				note(size)
				if x.mine == nil { // an atomic uses none of this side's memory
					must(p.client.FetchAdd(limited(t), remote.Range(0, 8), 1))(t)
				}
			}
			// A rail that was slow for a moment gets no slice of such operations until it is measured again.
			for ctx := limited(t); ctx.Err() == nil && p.client.Stats().ByNIC["mem2"].Bytes == before["mem2"].Bytes; {
				write()
			}
			for nic, s := range p.client.Stats().ByNIC {
				n := s.Bytes - before[nic].Bytes
				if bad := x.mine[nic] || x.theirs[nic]; bad && n > 0 || nic == "mem2" && n == 0 {
					t.Errorf("%s has carried %d bytes", nic, n)
				}
			}
			var mend []func()
			for _, nic := range s.nics {
				if !x.mine[nic] && !x.theirs[nic] {
					mend = append(mend, s.portDown(p, nic))
				}
			}
			for range 2 {
				write() // there is nothing better now
			}
			for _, m := range mend {
				m()
			}
			ok(t, p.client.Close())
			gone(t, p.server)
		})
	}
}
