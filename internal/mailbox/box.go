// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
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
	lists   [Note + 1]list
}

// list has the messages of a kind that have arrived.
type list struct {
	messages fifo.Queue[[]byte]
	arrived  chan struct{} // signals that there is one
}

// Open allocates the slots.
func (b *Box) Open(nic *memory.NIC, ours, theirs Size) error {
	b.depth, b.credits, b.most = ours.Depth, theirs.Depth, theirs.Depth
	b.ours, b.longest = ours.Length, min(ours.Length, theirs.Length)
	b.in, b.out = headSize+max(b.ours, creditSize), headSize+max(b.longest, creditSize)
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
	for k := range b.lists {
		b.lists[k].arrived = make(chan struct{}, 1)
	}
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
		return Letter{}, &dmabuf.Error{Op: what, Detail: detail, Remedy: remedy, Err: err}
	}
	switch {
	case b.depth == 0:
		return refuse("the connection has no messages of its own", "make it with a number of messages", unix.EOPNOTSUPP)
	case len(p) > b.longest:
		return refuse(fmt.Sprintf("a message of %d bytes", len(p)), fmt.Sprintf("this connection takes %d at most, the smaller MessageSize of both sides: raise it, or write", b.longest), memory.ErrTooLong)
	}
	return Letter{kind: kind, payload: p}, nil
}

// slot returns the offset of a sending slot.
func (b *Box) slot(i int) int { return b.sent + (i-1)*b.out }

func (b *Box) bytes(off, n int) []byte { return b.buf.HostBytes()[off : off+n] }

// MayStart reports whether a letter has a credit and a slot, if it is a message.
func (b *Box) MayStart(l *Letter) bool { return l.None() || b.credits > 0 && len(b.free) > 0 }

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
	l.length = headSize + len(l.payload)
	p := b.bytes(b.slot(l.slot), l.length)
	p[0] = byte(l.kind)
	copy(p[headSize:], l.payload)
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
	if n < headSize || n > b.in {
		return malformed(fmt.Sprintf("a message of %d bytes", n))
	}
	p := b.bytes((l.slot-1)*b.in, n)
	kind, body := Kind(p[0]), p[headSize:]
	switch kind {
	case Message, Note:
		if len(body) > b.ours {
			return malformed(fmt.Sprintf("a message of %d bytes", n))
		}
		if b.lists[Message].messages.Len()+b.lists[Note].messages.Len() >= b.depth {
			return malformed("a message without a credit")
		}
		b.arrived++
		l := &b.lists[kind]
		l.messages.Push(append([]byte(nil), body...))
		l.tell()
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

// TakeBack takes back the slot of a message, which will be stamped again.
func (b *Box) TakeBack(l *Letter) {
	if l.slot == 0 || l.Own() {
		return
	}
	at := b.slot(l.slot)
	l.payload = append([]byte(nil), b.bytes(at+headSize, l.length-headSize)...)
	b.free = append(b.free, l.slot)
	l.slot, l.posted = 0, false
}

// Restart returns the number of messages that have arrived, and of those that the program has not
// taken. The peer gets both: nothing is owed to it any more.
func (b *Box) Restart() (arrived uint64, untaken int) {
	b.owed = 0
	return b.arrived, b.lists[Message].messages.Len() + b.lists[Note].messages.Len()
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
	return &dmabuf.Error{Op: "receive", Detail: detail, Err: wire.ErrMalformed}
}

// Signal returns a channel that gets a value when a message of the kind may have arrived.
func (b *Box) Signal(kind Kind) <-chan struct{} { return b.lists[kind].arrived }

// Take returns the next message of the kind. If there are more, or over is true, another goroutine
// that waits gets a value of Signal.
func (b *Box) Take(kind Kind, over bool) (p []byte, ok bool) {
	l := &b.lists[kind]
	if l.messages.Len() == 0 {
		return nil, false
	}
	p = l.messages.Pop()
	if l.messages.Len() > 0 || over {
		l.tell()
	}
	b.owed++
	return p, true
}

func (l *list) tell() {
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}
