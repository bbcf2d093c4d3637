// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/progress"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// The messages of a connection over several NICs.
const (
	MaxPiece   = 32 << 10 // bytes of a message; a longer one is sent as several
	numberSize = 8        // of its number, which comes first
	MailSize   = MaxPiece + numberSize
	MailDepth  = 16 // messages that the peer's program has not taken
)

// letter returns a message with the next number.
func (r *OverRails) letter(from rails.Local, off, n int64) ([]byte, error) {
	b := make([]byte, numberSize+n)
	binary.BigEndian.PutUint64(b, r.number+1)
	_, err := from.Bufs[0].ReadAt(b[numberSize:], from.Off+off)
	return b, err
}

// inbound are the messages that come in. The link's mutex guards it.
type inbound struct {
	wanted []*wanted
	some   chan struct{} // gets a value when there is one more
	number uint64        // of the last message that came
	lost   uint64        // numbers that never came
	twice  uint64        // messages whose number had come
	err    error         // of a message that cannot be
}

// wanted is the memory for the next message.
type wanted struct {
	into  rails.Local
	done  any
	left  int   // parts that are to come
	heard int64 // bytes
}

// Receive implements Link.
func (r *OverRails) Receive(into rails.Local, done any) error {
	r.mu.Lock()
	r.in.wanted = append(r.in.wanted, &wanted{into: into, done: done, left: pieces(operation.Send, into.Len)})
	r.mu.Unlock()
	select {
	case r.in.some <- struct{}{}:
	default:
	}
	return nil
}

// receiveAll puts each message where it is wanted, and waits where none is.
func (r *OverRails) receiveAll(ctx context.Context) {
	for {
		p, err := r.c.Receive(ctx, mailbox.Message)
		if err != nil {
			return // take returns why the connection has ended
		}
		switch fresh, err := r.arrived(p); {
		case err != nil:
			return
		case !fresh:
			continue
		}
		w := r.next()
		for w == nil {
			select {
			case <-r.in.some:
				w = r.next()
			case <-ctx.Done():
				return
			}
		}
		r.put(w, p[numberSize:])
	}
}

// arrived records a message's number. fresh is true if the number had not come before.
func (r *OverRails) arrived(p []byte) (fresh bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := &r.in
	if len(p) < numberSize {
		in.err = fmt.Errorf("%w: a message of %d bytes", talk.ErrMalformed, len(p))
		r.awake()
		return false, in.err
	}
	n := binary.BigEndian.Uint64(p)
	if n <= in.number {
		in.twice++
		return false, nil
	}
	in.lost += n - in.number - 1
	in.number = n
	return true, nil
}

// next returns the memory for the next message, nil if none is wanted yet.
func (r *OverRails) next() *wanted {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.in.wanted) == 0 {
		return nil
	}
	return r.in.wanted[0]
}

// put copies a message to where it is wanted.
func (r *OverRails) put(w *wanted, p []byte) {
	room := max(0, w.into.Len-w.heard)
	_, err := w.into.Bufs[0].WriteAt(p[:min(int64(len(p)), room)], w.into.Off+min(w.heard, w.into.Len))
	r.mu.Lock()
	defer r.mu.Unlock()
	w.heard += int64(len(p))
	if w.left--; w.left > 0 && err == nil {
		return
	}
	r.in.wanted = r.in.wanted[1:]
	r.push(operation.Completion{Context: w.done, Op: operation.Recv, Len: w.heard, Err: err})
}

// awake wakes the goroutine that waits in take. The mutex is held.
func (r *OverRails) awake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// await waits for a completion, or the end.
func (r *OverRails) await(ctx context.Context) error {
	return progress.Await(ctx, r.c.Polls(), r.wake, r.c.Done())
}

// spans returns memory as each NIC has it.
func spans(l rails.Local) rails.Spans {
	return func(n *rails.NIC) (memory.Span, error) { return l.On(n), nil }
}
