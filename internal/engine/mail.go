// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// A connection with MailDepth receives messages by itself. It keeps that many receives posted,
// and mailControls more, and copies what arrives into a list that the program takes from. A
// side may send a message only with a credit: it begins with as many as the peer keeps
// receives, and gets one back when the peer's program has taken a message. So no message finds
// its receiver not ready, and the list has no more messages than MailDepth. Credits come back
// in messages that need no credit themselves: one carries at least half of all credits, and so
// at most two of them are on their way.

// mailControls is the number of receives for messages that need no credit.
const mailControls = 4

// MailKind says what a message of a connection with MailDepth is.
type MailKind byte

// The kinds that Receive returns.
const (
	MailMessage MailKind = 1 + iota // sent by itself
	MailNote                        // sent after the bytes of a write

	mailCredit  // 4 bytes: the number of credits
	mailReceive // in a Work: a receive for any of them
)

// mailHead is the size of a message's kind, in bytes.
const mailHead = 1

// letter is a work's message.
type letter struct {
	kind    MailKind
	payload []byte // until it is in its slot
	slot    int    // of the mailbox; counted from 1, 0 if it has none
	length  int    // in the slot
	posted  bool
}

// mailbox is the memory of a connection's messages.
type mailbox struct {
	buf     *memory.Buffer // the slots; nil without MailDepth
	piece   lower.Piece    // of buf
	depth   int            // receives for messages that took a credit
	in, out int            // sizes of a receiving and a sending slot
	sent    int            // offset of the first sending slot
	free    []int          // sending slots
	control []int          // sending slots of messages that need no credit
	credits int            // messages that may be sent
	owed    int            // messages that the program has taken since the last mailCredit
	lists   [MailNote + 1]mailList
}

// mailList is the messages of a kind that have arrived.
type mailList struct {
	messages fifo.Queue[[]byte]
	arrived  chan struct{} // signals one
}

func (o *EndpointOptions) mail() exchange.Mail {
	if o.MailDepth == 0 {
		return exchange.Mail{}
	}
	return exchange.Mail{Depth: uint16(o.MailDepth), Size: uint32(o.MailSize)}
}

// openMail allocates the slots, once the peer has said how many messages it takes.
func (c *Conn) openMail(ours, theirs exchange.Mail) error {
	if (ours.Depth == 0) != (theirs.Depth == 0) {
		const text = "one side receives messages by itself, and the other does not"
		return exchange.NewRejection(text, fmt.Errorf("%w: %s", ErrRejected, text))
	}
	if ours.Depth == 0 {
		return nil
	}
	slots := int(min(ours.Depth, theirs.Depth))
	in, out := mailHead+int(ours.Size), mailHead+int(min(ours.Size, theirs.Size))
	sent := (int(ours.Depth) + mailControls) * in
	buf, err := c.e.nic.AllocHost(int64(sent + (slots+mailControls)*out))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == dead {
		return errs.Join(c.gone(), buf.Release())
	}
	c.theirMail = theirs
	m := &c.mail
	m.buf, m.in, m.out, m.sent = buf, in, out, sent
	m.depth, m.credits = int(ours.Depth), int(theirs.Depth)
	for i := range slots {
		m.free = append(m.free, slots-i)
	}
	for i := range mailControls {
		m.control = append(m.control, slots+1+i)
	}
	m.piece = m.buf.Piece()
	for k := range m.lists {
		m.lists[k].arrived = make(chan struct{}, 1)
	}
	for i := range m.depth + mailControls {
		o := c.e.newWork(operation.Recv, 0, nil)
		o.letter = letter{kind: mailReceive, slot: i + 1}
		o.local = append(o.local, m.buf.Window(int64(i*m.in), int64(m.in)))
		o.length = int64(m.in)
		c.rq.waiting.Push(o)
	}
	return nil
}

// closeMail frees the slots, which the NIC does not use any more.
func (c *Conn) closeMail() {
	if c.mail.buf != nil {
		_ = c.mail.buf.Release()
		c.mail.buf = nil
	}
}

// slot returns the offset of a sending slot.
func (m *mailbox) slot(i int) int { return m.sent + (i-1)*m.out }

func (m *mailbox) bytes(off, n int) []byte { return m.buf.HostBytes()[off : off+n] }

// mayStart reports whether the message of a work has a credit and a slot, if it has a message.
func (m *mailbox) mayStart(o *Work) bool {
	return o.letter.kind == 0 || m.credits > 0 && len(m.free) > 0
}

// stamp puts a work's message into a slot.
func (m *mailbox) stamp(o *Work) {
	slots := &m.free
	if o.letter.kind == mailCredit {
		slots = &m.control
	} else {
		m.credits--
	}
	l := &o.letter
	n := len(*slots) - 1
	l.slot, *slots = (*slots)[n], (*slots)[:n]
	l.length = mailHead + len(l.payload)
	p := m.bytes(m.slot(l.slot), l.length)
	p[0] = byte(l.kind)
	copy(p[mailHead:], l.payload)
	l.payload = nil
}

// unstamp takes back the slot of a work that has ended, and the credit of a message that was
// not posted.
func (m *mailbox) unstamp(o *Work) {
	l := &o.letter
	switch {
	case l.slot == 0 || l.kind == mailReceive:
		return
	case l.kind == mailCredit:
		m.control = append(m.control, l.slot)
	default:
		m.free = append(m.free, l.slot)
		if !l.posted {
			m.credits++
		}
	}
	l.slot = 0
}

// makeLetter makes the work request of a work's message.
func (o *Work) makeLetter(c *Conn, wrs []ibvfd.SendWR, sges []ibvfd.SGE) (n, used int) {
	l, m := &o.letter, &c.mail
	sges[0] = ibvfd.SGE{Addr: m.piece.Addr + uint64(m.slot(l.slot)), Length: uint32(l.length), LKey: m.piece.Key}
	wrs[0] = ibvfd.SendWR{Op: ibvfd.OpSend, SGE: sges[:1:1]}
	if l.length <= c.a.Inline {
		wrs[0].Flags |= ibvfd.SendInline
	}
	l.posted, o.made = true, true
	return 1, 1
}

// payCredits returns credits to the peer, once they are half of all.
func (c *Conn) payCredits() {
	m := &c.mail
	if m.buf == nil || m.owed < (m.depth+1)/2 || len(m.control) == 0 || c.q[rc.WriteQueue].free == 0 || c.state != up {
		return
	}
	o := c.e.newWork(operation.Send, 0, nil)
	o.letter = letter{kind: mailCredit, payload: binary.BigEndian.AppendUint32(nil, uint32(m.owed))}
	m.owed = 0
	m.stamp(o)
	c.feed(o)
}

// mailArrived takes a message from a receive, whose length is set.
func (c *Conn) mailArrived(o *Work) error {
	m := &c.mail
	malformed := func(detail string) error {
		return &dmabuf.Error{Op: "receive", Detail: detail, Err: ErrMalformed}
	}
	if o.length < mailHead || o.length > int64(m.in) {
		return malformed(fmt.Sprintf("a message of %d bytes", o.length))
	}
	p := m.bytes((o.letter.slot-1)*m.in, int(o.length))
	kind, body := MailKind(p[0]), p[mailHead:]
	switch kind {
	case MailMessage, MailNote:
		if m.lists[MailMessage].messages.Len()+m.lists[MailNote].messages.Len() >= m.depth {
			return malformed("a message without a credit")
		}
		l := &m.lists[kind]
		l.messages.Push(append([]byte(nil), body...))
		l.tell()
	case mailCredit:
		if len(body) != 4 {
			return malformed(fmt.Sprintf("credits in %d bytes", len(body)))
		}
		m.credits += int(binary.BigEndian.Uint32(body) & 0xffff)
		if most := int(c.theirMail.Depth); m.credits > most {
			return malformed(fmt.Sprintf("%d credits, of %d", m.credits, most))
		}
	default:
		return malformed(fmt.Sprintf("a message of kind %d", kind))
	}
	o.length = int64(m.in)
	return nil
}

func (l *mailList) tell() {
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

// Receive waits for a message of the kind, and returns its bytes, which are the caller's. The
// error of a connection that has ended comes after its messages.
func (c *Conn) Receive(ctx context.Context, kind MailKind) ([]byte, error) {
	l := &c.mail.lists[kind]
	for {
		p, ok, err := c.takeMail(l)
		if ok || err != nil {
			return p, err
		}
		if err := c.e.Await(ctx, l.arrived, c.ended); err != nil {
			return nil, err
		}
	}
}

func (c *Conn) takeMail(l *mailList) (p []byte, ok bool, err error) {
	over := false
	select {
	case <-c.ended: // before looking: nothing is added after it
		over = true
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case l.messages.Len() > 0:
		p = l.messages.Pop()
		if l.messages.Len() > 0 || over {
			l.tell() // another goroutine that waits
		}
		c.mail.owed++
		c.kick()
		return p, true, nil
	case over:
		return nil, false, c.gone()
	}
	return nil, false, nil
}

// SetMail makes a message the work's: of a send the message itself, of a write the note that
// follows its bytes. p is copied when the message is posted: until the completion it must not
// change.
func (o *Work) SetMail(c *Conn, p []byte) error {
	m := &c.mail
	refuse := func(detail, remedy string, err error) error {
		return &dmabuf.Error{Op: o.kind.String(), Detail: detail, Remedy: remedy, Err: err}
	}
	switch {
	case m.depth == 0:
		return refuse("the connection has no messages of its own", "make it with a number of messages", unix.EOPNOTSUPP)
	case len(p) > m.out-mailHead:
		return refuse(fmt.Sprintf("a message of %d bytes", len(p)), fmt.Sprintf("this connection takes %d at most, the smaller MessageSize of both sides: raise it, or write", m.out-mailHead), dmabuf.ErrLimit)
	}
	o.letter = letter{kind: MailMessage, payload: p}
	if o.kind == operation.Write {
		o.letter.kind = MailNote
	}
	return nil
}
