// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/verify"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// Controls is the number of receives for messages that need no credit.
const Controls = 4

// Size is the number of messages that a side receives by itself, and the length of the longest
// one in bytes. A side that receives none has the zero Size.
type Size struct {
	Depth, Length int
}

// Box has the messages of a connection. The connection's mutex guards it; only Letter may be
// called without it. The zero Box receives nothing.
type Box struct {
	buf     *memory.Buffer // the slots; nil if it receives nothing
	piece   lower.Piece    // of buf
	depth   int            // receives for messages that took a credit
	in, out int            // sizes of a receiving and a sending slot
	ours    int            // bytes of the longest message that this side receives
	longest int            // bytes of the longest message that this side sends
	sent    int            // offset of the first sending slot
	free    []int          // sending slots
	control []int          // sending slots of messages that need no credit
	credits int            // messages that may be sent
	most    int            // the most credits that this side may have
	owed    int            // messages that the program has taken since credits were last sent
	arrived uint64         // messages that have arrived
	untaken int            // of these, that the program has not taken
	head    int            // bytes before those of a message
	shared  *Shared        // nil if there is one rail only
	inbox   *inbox
	taken   func() // is called when the program has taken a message that has arrived here
}

// Open allocates the slots. shared has the messages of all rails; it is nil for a connection over
// one. taken is called, without a lock, when the program has taken a message that has arrived here:
// it calls Taken.
func (b *Box) Open(nic *memory.NIC, ours, theirs Size, shared *Shared, taken func()) error {
	b.taken, b.shared, b.head = taken, shared, kindSize
	if shared != nil {
		b.inbox, b.head = &shared.inbox, kindSize+numberSize
	} else {
		b.inbox = new(inbox)
		b.inbox.open()
	}
	b.depth, b.credits, b.most = ours.Depth, theirs.Depth, theirs.Depth
	b.ours, b.longest = ours.Length, min(ours.Length, theirs.Length)
	b.in, b.out = b.head+max(b.ours, creditSize), b.head+max(b.longest, creditSize)
	b.sent = b.Receives() * b.in
	slots := min(b.credits, b.depth)
	for i := range slots {
		b.free = append(b.free, slots-i)
	}
	for i := range Controls {
		b.control = append(b.control, slots+1+i)
	}
	var err error
	if b.buf, err = nic.AllocHost(int64(b.sent + (slots+Controls)*b.out)); err != nil {
		return err
	}
	b.piece = b.buf.Piece()
	return nil
}

// Close frees the slots, which the NIC must not use any more.
func (b *Box) Close() {
	if b.buf != nil {
		_ = b.buf.Release()
		b.buf = nil
	}
}

// Receives returns the number of receives to post.
func (b *Box) Receives() int { return b.depth + Controls }

// Receive returns receive i to post, from 0 to Receives-1, and its memory.
func (b *Box) Receive(i int) (Letter, lower.Window) {
	return Letter{kind: receive, slot: i + 1}, b.buf.Window(int64(i*b.in), int64(b.in))
}

// Letter returns the message of an operation: a message of its own, or the note that follows a
// write's bytes. p is copied by Stamp: until then it must not change. what names the operation in
// an error.
func (b *Box) Letter(what string, kind Kind, p []byte) (Letter, error) {
	refuse := func(detail, remedy string, err error) (Letter, error) {
		return Letter{}, &failure.Error{Op: what, Detail: detail, Remedy: remedy, Err: err}
	}
	switch {
	case b.depth == 0:
		return refuse("the connection has no messages of its own", "make it with a number of messages", unix.EOPNOTSUPP)
	case len(p) > b.longest:
		return refuse(fmt.Sprintf("a message of %d bytes", len(p)), fmt.Sprintf("this connection takes %d at most, the smaller MessageSize of both sides: raise it, or write", b.longest), memory.ErrTooLong)
	}
	return Letter{kind: kind, payload: p}, nil
}

// Summed returns the note of a write with sums, for which it leaves room.
func (b *Box) Summed(what string, p []byte) (Letter, error) {
	if b.depth > 0 && len(p) > b.longest-SumsSize {
		return Letter{}, &failure.Error{
			Op: what, Detail: fmt.Sprintf("a note of %d bytes, and Config.Verify", len(p)), Err: memory.ErrTooLong,
			Remedy: fmt.Sprintf("sums take %d of the %d bytes that this connection takes, the smaller MessageSize of both sides: raise it, or write with a shorter note", SumsSize, b.longest),
		}
	}
	return b.Letter(what, Note, p)
}

// slot returns the offset of a sending slot.
func (b *Box) slot(i int) int { return b.sent + (i-1)*b.out }

func (b *Box) bytes(off, n int) []byte { return b.buf.HostBytes()[off : off+n] }

// Room returns the number of messages for which there are credits and slots.
func (b *Box) Room() int { return min(b.credits, len(b.free)) }

// MayStart reports whether a letter has a credit and a slot, if it is a message.
func (b *Box) MayStart(l *Letter) bool { return l.None() || b.Room() > 0 }

// Stamp puts a message into a slot.
func (b *Box) Stamp(l *Letter) {
	slots := &b.free
	if l.kind == credit {
		slots = &b.control
	} else {
		b.credits--
	}
	n := len(*slots) - 1
	l.slot, *slots = (*slots)[n], (*slots)[:n]
	l.length, l.head = b.head+len(l.payload), b.head
	p := b.bytes(b.slot(l.slot), l.length)
	p[0] = byte(l.kind)
	copy(p[b.head:], l.payload)
	l.payload = nil
}

// Unstamp takes back the slot of a message whose operation has ended, and the credit of a message
// that was not posted.
func (b *Box) Unstamp(l *Letter) {
	switch {
	case l.slot == 0 || l.kind == receive:
		return
	case l.kind == credit:
		b.control = append(b.control, l.slot)
	default:
		b.free = append(b.free, l.slot)
		if !l.posted {
			b.credits++
		}
	}
	l.slot = 0
}

// Request makes the work request of a message, which has a slot. Messages of up to inline bytes
// are put into the work request.
func (b *Box) Request(l *Letter, inline int, wr *ibvfd.SendWR, sges []ibvfd.SGE) {
	if b.shared != nil && l.kind != credit {
		binary.BigEndian.PutUint64(b.bytes(b.slot(l.slot)+kindSize, numberSize), b.shared.sent.Add(1))
	}
	sges[0] = ibvfd.SGE{Addr: b.piece.Addr + uint64(b.slot(l.slot)), Length: uint32(l.length), LKey: b.piece.Key}
	*wr = ibvfd.SendWR{Op: ibvfd.OpSend, SGE: sges[:1:1]}
	if l.length <= inline {
		wr.Flags |= ibvfd.SendInline
	}
	l.posted = true
}

// Owes reports whether credits are to be returned to the peer: once they are half of all.
func (b *Box) Owes() bool {
	return b.buf != nil && b.owed >= (b.depth+1)/2 && len(b.control) > 0
}

// Pay returns a message that returns the credits which are owed.
func (b *Box) Pay() Letter {
	l := Letter{kind: credit, payload: binary.BigEndian.AppendUint32(nil, uint32(b.owed))}
	b.owed = 0
	return l
}

// Arrived takes a message of n bytes that a receive has completed with.
func (b *Box) Arrived(l *Letter, n int) error {
	if n < b.head || n > b.in {
		return malformed(fmt.Sprintf("a message of %d bytes", n))
	}
	p := b.bytes((l.slot-1)*b.in, n)
	kind, body := Kind(p[0]), p[b.head:]
	var sums *verify.Trailer
	switch kind {
	case Message, Note, summed:
		if len(body) > b.ours {
			return malformed(fmt.Sprintf("a message of %d bytes", n))
		}
		if b.untaken >= b.depth {
			return malformed("a message without a credit")
		}
		if kind == summed {
			var err error
			if body, sums, err = cutSums(body); err != nil {
				return err
			}
			kind = Note
		}
		number := uint64(0)
		if b.shared != nil {
			number = binary.BigEndian.Uint64(p[kindSize:])
		}
		if !b.inbox.put(number, item{kind, Mail{append([]byte(nil), body...), sums}, b.taken}) {
			return malformed(fmt.Sprintf("message %d a second time", number))
		}
		b.arrived++
		b.untaken++
	case credit:
		if len(body) != creditSize {
			return malformed(fmt.Sprintf("credits in %d bytes", len(body)))
		}
		b.credits += int(binary.BigEndian.Uint32(body) & 0xffff)
		if b.credits > b.most {
			return malformed(fmt.Sprintf("%d credits, of %d", b.credits, b.most))
		}
	default:
		return malformed(fmt.Sprintf("a message of kind %d", kind))
	}
	return nil
}

// cutSums returns a note and its sums.
func cutSums(body []byte) (note []byte, sums *verify.Trailer, err error) {
	n := len(body) - lengthSize
	if n < 0 {
		return nil, nil, malformed(fmt.Sprintf("a note with sums in %d bytes", len(body)))
	}
	size := int(binary.BigEndian.Uint16(body[n:]))
	if size > n {
		return nil, nil, malformed(fmt.Sprintf("sums of %d bytes in a note of %d", size, n))
	}
	sums, err = verify.Decode(body[n-size : n])
	return body[:n-size], sums, err
}

// TakeBack takes back the slot of a message, which will be stamped again.
func (b *Box) TakeBack(l *Letter) {
	if l.slot == 0 || l.Own() {
		return
	}
	at := b.slot(l.slot)
	l.payload = append([]byte(nil), b.bytes(at+b.head, l.length-b.head)...)
	b.free = append(b.free, l.slot)
	l.slot, l.posted = 0, false
}

// Restart returns the number of messages that have arrived, and of those that the program has not
// taken. The peer gets both: nothing is owed to it any more.
func (b *Box) Restart() (arrived uint64, untaken int) {
	b.owed = 0
	return b.arrived, b.untaken
}

// Renew sets the credits for a peer whose program has not taken a number of messages.
func (b *Box) Renew(untaken int) error {
	if untaken > b.most {
		return malformed(fmt.Sprintf("%d messages that were not taken, of %d", untaken, b.most))
	}
	b.credits = b.most - untaken
	return nil
}

func malformed(detail string) error {
	return &failure.Error{Op: "receive", Detail: detail, Err: wire.ErrMalformed}
}

// Unsent says that the last n messages were not received: the next ones get their numbers.
func (b *Box) Unsent(n uint64) {
	if b.shared != nil {
		b.shared.sent.Add(-n)
	}
}

// Signal returns a channel that gets a value when a message of the kind may have arrived.
func (b *Box) Signal(kind Kind) <-chan struct{} {
	if b.inbox == nil {
		return nil
	}
	return b.inbox.lists[kind].arrived
}

// Take returns the next message of the kind, over any rail. The caller calls taken, without a lock.
// If there are more, or over is true, another goroutine that waits gets a value of Signal. It may be
// called without the connection's mutex.
func (b *Box) Take(kind Kind, over bool) (m Mail, taken func(), ok bool) {
	if b.inbox == nil {
		return Mail{}, nil, false
	}
	x, ok := b.inbox.take(kind, over)
	return x.Mail, x.taken, ok
}

// Taken says that the program has taken a message that has arrived here.
func (b *Box) Taken() {
	b.untaken--
	b.owed++
}
