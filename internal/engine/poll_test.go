// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"testing"

	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rma"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The next Poll posts an operation with FlagMore, even if there are more completions than Poll
// has room for, or no room.
func TestPollDrives(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	want := random(t, testenv.Seeded(t), mine, 64)
	to := w.share(theirs.All(), allAccess)
	more := func(context any) {
		t.Helper()
		w.ok(w.a.WriteMsg(rma.Msg{Local: []memory.Span{mine.All()}, Peer: w.ab, Remote: []memory.RemoteSpan{to.All()}, Context: context}, operation.FlagMore))
		if n := w.a.unposted(w.ab); n != 1 {
			t.Fatalf("%d operations wait, want the one with FlagMore", n)
		}
	}
	for i := range 3 {
		w.ok(w.a.Write(mine.All(), w.ab, to.All(), i))
	}
	for ctx := limited(t); w.a.Untaken() < 3; {
		w.a.Make()
		w.inTime(ctx)
	}
	more(3)
	var c [1]operation.Completion
	if n, err := w.a.Poll(c[:]); n != 1 || err != nil || c[0].Context != 0 || c[0].Err != nil {
		t.Fatalf("%d, %v, %+v", n, err, c)
	}
	if n := w.a.unposted(w.ab); n != 0 {
		t.Errorf("%d operations still wait: Poll had completions enough", n)
	}
	for i := 1; i < 4; i++ {
		w.done(w.a, operation.Write, i)
	}

	w.ok(zero(theirs))
	more(4)
	for ctx := limited(t); w.a.Untaken() < 1; {
		if n, err := w.a.Poll(nil); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		w.inTime(ctx)
	}
	same(t, "by Poll(nil)", theirs, want)
	w.done(w.a, operation.Write, 4)
}

// Completions that a program does not take do not pile up: while there are as many as Poll has
// room for, AutoReceive posts no new receives.
func TestPollLeavesWhatItHasNoRoomFor(t *testing.T) {
	const receives = 4
	w := inMemory(t).world(t, EndpointOptions{AutoReceive: receives})
	for i := range receives {
		w.ok(w.a.WriteData(memory.Span{}, uint64(i), w.ab, memory.RemoteSpan{}, i))
		w.done(w.a, operation.Write, i)
	}
	var c [1]operation.Completion
	take := func(want uint32) {
		t.Helper()
		if n, err := w.b.Poll(c[:]); n != 1 || err != nil || c[0].Data != want {
			t.Fatalf("%d, %v, %+v", n, err, c)
		}
	}
	take(0) // and leaves the others to the NIC
	w.ok(w.a.WriteData(memory.Span{}, receives, w.ab, memory.RemoteSpan{}, receives))
	w.done(w.a, operation.Write, receives)
	for i := 1; i < receives; i++ {
		take(uint32(i))
		if n := w.b.Untaken(); n != receives-1-i {
			t.Errorf("%d completions wait after %d of %d were taken", n, i+1, receives)
		}
	}
	take(receives)
}

// unposted returns the number of operations to a peer that were not posted to the NIC.
func (e *Endpoint) unposted(p operation.Peer) int {
	return e.connTo(p).Works.State().Pending
}

func (w *world) inTime(ctx context.Context) {
	w.t.Helper()
	w.ok(ctx.Err())
}

func zero(b *memory.Buffer) error {
	_, err := b.WriteAt(bytes.Repeat([]byte{0}, int(b.Size())), 0)
	return err
}
