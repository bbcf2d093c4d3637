// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A connection's completion queue holds all that can be under way. If it overruns
// nevertheless, the NIC's event ends the connection, on both sides and without a call of Poll;
// the endpoints connect again.
func TestVMCQOverrun(t *testing.T) {
	w := onNIC(t).world(t, EndpointOptions{SendDepth: 4, RecvDepth: 4})
	const size = 1000
	mine, theirs := hostKind.make(t, w.a.nic, size), hostKind.make(t, w.b.nic, size)
	here := random(t, testenv.Seeded(t), mine, size)
	old := w.share(theirs.All(), allAccess)
	w.ok(w.a.Recv(memory.Span{}, w.ab, "receive"))
	w.ok(w.b.Recv(memory.Span{}, w.ba, "receive"))

	// The package does not count these work requests, and no goroutine takes the completions.
	c := w.a.connTo(w.ab)
	l := c.Works.State().Link
	write := []ibvfd.SendWR{{Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled}}
	for ctx := limited(t); !c.Works.Over(); {
		if ctx.Err() != nil {
			t.Fatal("no event")
		}
		if _, err := l.Post(rc.WriteQueue, write); err != nil { // full
			time.Sleep(time.Millisecond)
		}
	}
	done := w.wait(w.a)
	var why *rc.EventError
	if done.Context != "receive" || !errors.Is(done.Err, ErrNotConnected) || !errors.As(done.Err, &why) || why.Event.Type != ibvfd.EventCQErr {
		t.Errorf("%+v, want the event %v", done, ibvfd.EventCQErr)
	}
	if c := w.wait(w.b); c.Context != "receive" || !errors.Is(c.Err, ErrNotConnected) {
		t.Errorf("the other side: %+v", c)
	}
	w.lost(w.a, w.ab)
	w.lost(w.b, w.ba)

	w.connect()
	if err := w.a.Write(mine.All(), w.ab, old.All(), nil); !errors.Is(err, operation.ErrStaleKey) {
		t.Errorf("a key of the connection before: %v", err)
	}
	w.ok(w.a.Write(mine.All(), w.ab, w.share(theirs.All(), allAccess).All(), "again"))
	w.done(w.a, operation.Write, "again")
	same(t, "after the overrun", theirs, here)
}
