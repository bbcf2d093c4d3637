// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
)

// With OrderWrites a peer that polls memory finds the bytes of a write when it sees the flag of the next
// one, over any rail.
func TestRailsOrderWrites(t *testing.T) {
	const size = 1 << 20
	_, p := overRails(t, fabrictest.Options{HoldWrites: true}, gpurdma.Config{Ordering: gpurdma.OrderWrites})
	mine, theirs, remote := p.both(size + 8)
	for round := range 40 {
		want := bytes.Repeat([]byte{byte(round)}, size)
		flag := binary.LittleEndian.AppendUint64(nil, uint64(round+1))
		put(t, mine, append(want[:size:size], flag...))
		b := p.client.Batch()
		b.Write(remote.Range(0, size), mine.Range(0, size))
		b.Write(remote.Range(size, 8), mine.Range(size, 8), gpurdma.Delivered())
		ended := make(chan error, 1)
		go func() { ended <- b.Do(limited(t)) }()
		for ctx, got := limited(t), make([]byte, 8); !bytes.Equal(got, flag); time.Sleep(50 * time.Microsecond) {
			if _, err := theirs.ReadAt(got, size); err != nil || ctx.Err() != nil {
				t.Fatal(err, ctx.Err())
			}
		}
		if got := content(t, theirs)[:size]; !bytes.Equal(got, want) {
			t.Fatalf("round %d: the flag is there, and %d bytes are not", round, size-bytes.Count(got, want[:1]))
		}
		ok(t, <-ended)
	}
}

// A write that overlaps one whose rail does not answer waits for it, but with OrderFences does not; a
// notification waits with both.
func TestRailsOrderFences(t *testing.T) {
	for _, o := range []int{gpurdma.OrderOverlaps, gpurdma.OrderFences} {
		s, p := overRails(t, fabrictest.Options{}, gpurdma.Config{Ordering: o, PeerTimeout: 2 * time.Second})
		mine, _, remote := p.both(1 << 20)
		p.overAll(remote, mine.All(), len(s.nics))
		mend := s.cutRail(p, "mem1")
		start := func(op gpurdma.Op) *gpurdma.Transfer {
			op.Kind = gpurdma.OpWrite
			return must(p.client.Start(limited(t), op))(t)
		}
		ended := func(x *gpurdma.Transfer) bool {
			select {
			case <-x.Done():
				return true
			default:
				return false
			}
		}
		carried := func() (n int64) { // by the other rails
			return p.client.Stats().ByNIC["mem0"].Bytes + p.client.Stats().ByNIC["mem2"].Bytes
		}
		first := start(gpurdma.Op{Local: mine.All(), Remote: remote})
		for last, same := int64(-1), 0; same < 10; time.Sleep(20 * time.Millisecond) { // until they have nothing to do
			now := carried()
			if same++; now != last {
				last, same = now, 0
			}
		}
		over := start(gpurdma.Op{Local: mine.Range(0, 64), Remote: remote.Range(0, 64)})
		noted := start(gpurdma.Op{Notify: true})
		ok(t, limitedDone(t, over))
		if waited := ended(first); waited != (o == gpurdma.OrderOverlaps) {
			t.Errorf("ordering %d: it has waited: %v", o, waited)
		}
		ok(t, limitedDone(t, noted))
		if !ended(first) {
			t.Errorf("ordering %d: a notification before the bytes", o)
		}
		must(p.server.ReceiveNotification(limited(t)))(t)
		mend()
		ok(t, p.client.Close())
		gone(t, p.server)
		ok(t, errors.Join(p.ln.Close(), p.a.Close(), p.b.Close()))
	}
	f := must(fabrictest.NewNetwork(fabrictest.Options{}).Open("mem0"))(t)
	if _, err := f.Listen("127.0.0.1:0", gpurdma.Config{Ordering: 3}); !errors.Is(err, gpurdma.ErrRange) {
		t.Error(err)
	}
	ok(t, f.Close())
}
