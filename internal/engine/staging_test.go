// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"golang.org/x/sys/unix"
)

// fullSource is a source that refuses some writes.
type fullSource struct {
	memSource
	refusals atomic.Int32
}

func (s *fullSource) WriteAt(p []byte, off int64) (int, error) {
	if s.refusals.Add(-1) >= 0 {
		return 0, unix.EIO
	}
	return s.memSource.WriteAt(p, off)
}

// Bytes that an operation has received and the source has refused are not lost: the next sync
// copies them. It does not take the source's old bytes for newer ones.
func TestArrivedAtASourceThatFails(t *testing.T) {
	const size = 2*64<<10 + 77 // more than is compared at a time
	r := testenv.Seeded(t)
	for _, op := range []string{"read", "receive"} {
		t.Run(op, func(t *testing.T) {
			w := inMemory(t).world(t, EndpointOptions{})
			src := &fullSource{memSource: memSource{mem: make([]byte, size)}}
			into := must(w.a.nic.Register(src, memory.BufferOptions{}))(t)
			closingBuffer(t, into)
			random(t, r, into, size) // bytes that must not come back
			theirs := hostKind.make(t, w.b.nic, size)
			want := random(t, r, theirs, size)
			rb := w.share(theirs.All(), allAccess)

			src.refusals.Store(1)
			if op == "read" {
				w.ok(w.a.Read(into.All(), w.ab, rb.All(), 1))
			} else {
				w.ok(w.a.Recv(into.All(), w.ab, 1))
				w.ok(w.b.Send(theirs.All(), w.ba, 2))
				w.done(w.b, operation.Send, 2)
			}
			if c := w.wait(w.a); c.Context != 1 || !errors.Is(c.Err, unix.EIO) {
				t.Fatalf("%+v, want what the source has answered", c)
			}
			// The source refuses another write, of a sync, and then none.
			src.refusals.Store(1)
			if err := into.Sync(); !errors.Is(err, unix.EIO) {
				t.Errorf("sync: %v", err)
			}
			if err := into.Sync(); err != nil {
				t.Fatal(err)
			}
			if string(src.mem) != string(want) {
				t.Error("the source has other bytes than arrived")
			}
			same(t, "after the failure", into, want)
		})
	}
}
