// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Writes and reads go over the other rails while messages wait on a rail for the peer's program.
func TestRailsPassMessages(t *testing.T) {
	_, p := overRails(t, fabrictest.Options{}, gpurdma.Config{Messages: 1})
	passes := p.passing()
	ok(t, p.client.Send(limited(t), []byte("the only credit")))
	waits := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpSend, Inline: []byte("waits")}))(t)
	passes(waits)
	for _, want := range []string{"the only credit", "waits"} {
		if got := must(p.server.Receive(limited(t)))(t); string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	ok(t, limitedDone(t, waits))
}

// The notification of a write to memory that one rail reaches waits on that rail.
func TestRailsPassNotifications(t *testing.T) {
	_, p := overRails(t, fabrictest.Options{}, gpurdma.Config{Messages: 1})
	passes := p.passing()
	reached := p.export(reachedBy(t, p.b, 8, "mem1").All(), all)
	write := gpurdma.Op{Kind: gpurdma.OpWrite, Inline: []byte("notified"), Remote: reached, Notify: true}
	first := must(p.client.Start(limited(t), write))(t)
	ok(t, limitedDone(t, first))
	waits := must(p.client.Start(limited(t), write))(t)
	passes(waits)
	for range 2 {
		must(p.server.ReceiveNotification(limited(t)))(t)
	}
	ok(t, limitedDone(t, waits))
	ok(t, p.client.Close())
	gone(t, p.server)
}

// A message that will wait behind a write whose bytes are not ready counts as one that waits.
func TestRailsPassLaterMessages(t *testing.T) {
	_, p := overRails(t, fabrictest.Options{}, gpurdma.Config{Messages: 1})
	passes := p.passing()
	mine, _, remote := p.both(8)
	ok(t, p.client.Send(limited(t), []byte("the only credit")))
	ready := gated(t, mine)
	write := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}))(t)
	waits := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpSend, Inline: []byte("waits")}))(t)
	passes(write, waits)
	ready()
	ok(t, limitedDone(t, write))
	passes(waits)
	for range 2 {
		must(p.server.Receive(limited(t)))(t)
	}
	ok(t, limitedDone(t, waits))
}

// passing returns a function that writes and reads bytes of several sizes while transfers wait.
func (p *pair) passing() func(waits ...*gpurdma.Transfer) {
	mine, _, remote := p.both(300 << 10)
	unmeasured := func(r gpurdma.Rail) bool { return r.Rate == 0 } // it gets few slices
	for ctx := limited(p.t); slices.ContainsFunc(p.client.Rails(), unmeasured); {
		ok(p.t, p.client.Write(ctx, remote, mine.All(), gpurdma.Delivered()))
	}
	r := testenv.Seeded(p.t)
	return func(waits ...*gpurdma.Transfer) {
		p.t.Helper()
		for range testenv.Count(8) {
			for _, n := range []int64{8, 100 << 10, 300 << 10} {
				want := fill(p.t, r, mine)
				ok(p.t, p.client.Write(limited(p.t), remote.Range(0, n), mine.Range(0, n)))
				put(p.t, mine, make([]byte, n))
				ok(p.t, p.client.Read(limited(p.t), mine.Range(0, n), remote.Range(0, n)))
				same(p.t, "written and read", mine, want)
			}
		}
		for _, x := range waits {
			select {
			case <-x.Done():
				p.t.Errorf("it did not wait: %v", x.Err())
			default:
			}
		}
	}
}
