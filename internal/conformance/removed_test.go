// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
)

// A peer's NIC is removed after it has acknowledged a write, while it still has the bytes. An operation
// that must follow the write has an unknown outcome, as the bytes may be lost. The program writes again.
func TestRailsPeerNICRemoved(t *testing.T) {
	followers := map[string]func(p *pair, mine *gpurdma.Buffer, remote gpurdma.Remote) error{
		"notification": func(p *pair, _ *gpurdma.Buffer, _ gpurdma.Remote) error {
			return p.client.Write(limited(p.t), gpurdma.Remote{}, gpurdma.Span{}, gpurdma.Notify([]byte("wrong")))
		},
		"message": func(p *pair, _ *gpurdma.Buffer, _ gpurdma.Remote) error {
			return p.client.Send(limited(p.t), []byte("wrong"))
		},
		"read": func(p *pair, mine *gpurdma.Buffer, remote gpurdma.Remote) error {
			return p.client.Read(limited(p.t), mine.All(), remote)
		},
		"write over it": func(p *pair, mine *gpurdma.Buffer, remote gpurdma.Remote) error {
			return p.client.Write(limited(p.t), remote, mine.All(), gpurdma.Delivered())
		},
	}
	for name, follow := range followers {
		t.Run(name, func(t *testing.T) {
			s, p := overRails(t, fabrictest.Options{HoldWrites: true}, gpurdma.Config{PeerTimeout: 2 * time.Second})
			mine, theirs, remote := p.both(8)
			put(t, mine, []byte("the last"))
			nic := s.writeOver(p, mine, remote)
			s.net.NIC(p.b, nic).Remove()
			p.allUp(len(s.nics) - 1)
			if err := follow(p, mine, remote); !errors.Is(err, gpurdma.ErrOutcomeUnknown) {
				t.Errorf("after a write over %s, which is removed: %v", nic, err)
			}
			put(t, mine, []byte("again it"))
			ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify([]byte("it is there"))))
			if n := must(p.server.ReceiveNotification(limited(t)))(t); string(n) != "it is there" {
				t.Errorf("notification %q", n)
			}
			same(t, "written again", theirs, []byte("again it"))
			ok(t, p.client.Close())
			gone(t, p.server)
		})
	}
}

// writeOver writes over one rail, and returns its NIC. The peer's NIC has acknowledged the write.
func (s *setting) writeOver(p *pair, mine *gpurdma.Buffer, remote gpurdma.Remote) (nic string) {
	before := p.client.Stats().ByNIC
	ok(p.t, p.client.Write(limited(p.t), remote, mine.All()))
	for nic, s := range p.client.Stats().ByNIC {
		if s.Bytes > before[nic].Bytes {
			return nic
		}
	}
	p.t.Fatal("no NIC has carried the write")
	return ""
}

// A NIC of either side is removed under writes, one after the other, until one is left. A write has
// written its bytes, or its outcome is unknown.
func TestRailsNICsRemoved(t *testing.T) {
	for _, side := range []string{"own", "peer's"} {
		t.Run(side, func(t *testing.T) {
			s, p := overRails(t, fabrictest.Options{HoldWrites: true}, gpurdma.Config{PeerTimeout: 2 * time.Second})
			f := p.a
			if side != "own" {
				f = p.b
			}
			p.overRemovals(1, s.net.NIC(f, "mem1").Remove, s.net.NIC(f, "mem2").Remove)
		})
	}
}

// overRemovals writes while NICs are removed, until a number of rails are left.
func (p *pair) overRemovals(left int, removals ...func()) {
	t := p.t
	mine, theirs, remote := p.both(1 << 20)
	p.overAll(remote, mine.All(), left+len(removals))
	for k, remove := range removals {
		removed := make(chan struct{})
		go func() {
			defer close(removed)
			time.Sleep(20 * time.Millisecond)
			remove()
		}()
		for i, more := 0, true; more; i++ {
			select {
			case <-removed:
				more = false
			default:
			}
			want := fmt.Appendf(nil, "%d %07d", k, i)
			must(mine.WriteAt(want, int64(i%1000)*1000))(t)
			write := func() error { return p.client.Write(limited(t), remote, mine.All(), gpurdma.Delivered()) }
			err := write()
			if errors.Is(err, gpurdma.ErrOutcomeUnknown) {
				t.Logf("removal %d, write %d: %v", k, i, err)
				err = write()
			}
			ok(t, err)
			same(t, "written", theirs, content(t, mine))
		}
	}
	p.allUp(left)
	ok(t, p.client.Send(limited(t), []byte("over the last one")))
	ok(t, p.client.Close())
	gone(t, p.server)
}

// A rail loses its link with bytes of a completed write on their way to a GPU. A read through the peer's
// NIC pushes them before another rail carries anything: newer bytes are not overwritten, and a
// notification comes after the older ones.
func TestRailsPushToGPU(t *testing.T) {
	s, p := overRails(t, fabrictest.Options{HoldWrites: true}, gpurdma.Config{PeerTimeout: 300 * time.Millisecond})
	mine := host(t, p.a, 8)
	theirs := kind{name: "direct", spec: "cuda:0"}.alloc(t, p.b, 8)
	remote := p.export(theirs.All(), all)
	for i := range 4 {
		before, after := fmt.Appendf(nil, "first%03d", i), fmt.Appendf(nil, "newer%03d", i)
		put(t, mine, before)
		mend := s.cutRail(p, s.writeOver(p, mine, remote))
		if i%2 == 0 {
			ok(t, p.client.Write(limited(t), gpurdma.Remote{}, gpurdma.Span{}, gpurdma.Notify(nil)))
			must(p.server.ReceiveNotification(limited(t)))(t)
			same(t, "after a notification", theirs, before)
		}
		put(t, mine, after)
		ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Delivered()))
		same(t, "after a write over them", theirs, after)
		s.net.PlaceAll()
		same(t, "later", theirs, after)
		mend()
		p.allUp(len(s.nics))
	}
}
