// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/verify"
)

// Shared has the messages of a connection over several rails. They have numbers: those of one rail
// may be taken from its completion queue after later ones of another rail.
type Shared struct {
	inbox inbox
	sent  atomic.Uint64 // the number of the last message that was sent
}

// Several reports whether the connection has several rails.
func (b *Box) Several() bool { return b.shared != nil }

// NewShared returns the messages of a connection that is being made.
func NewShared() *Shared {
	s := &Shared{}
	s.inbox.open()
	s.inbox.early = map[uint64]item{}
	return s
}

// inbox has the messages that have arrived, and that the program has not taken. Its mutex may be
// locked after that of a Box's connection, never before it.
type inbox struct {
	mu    sync.Mutex
	last  uint64          // the number of the last message in lists, of a Shared
	early map[uint64]item // those with a later number, while one is missing
	lists [Note + 1]list
}

// Mail is a message for the program.
type Mail struct {
	Body []byte
	Sums *verify.Trailer // of the write whose notification it is; nil if there are none
}

// item is a message that has arrived.
type item struct {
	kind Kind
	Mail
	taken func() // gives the peer its credit back
}

// list has the messages of a kind that have arrived.
type list struct {
	messages fifo.Queue[item]
	arrived  chan struct{} // signals that there is one
}

func (x *inbox) open() {
	for k := range x.lists {
		x.lists[k].arrived = make(chan struct{}, 1)
	}
}

// put takes a message, with its number if there are several rails. It returns false if one with the
// number has arrived before.
func (x *inbox) put(number uint64, m item) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.early == nil {
		x.push(m)
		return true
	}
	if _, twice := x.early[number]; twice || number <= x.last {
		return false
	}
	x.early[number] = m
	for {
		m, ok := x.early[x.last+1]
		if !ok {
			return true
		}
		x.last++
		delete(x.early, x.last)
		x.push(m)
	}
}

func (x *inbox) push(m item) {
	l := &x.lists[m.kind]
	l.messages.Push(m)
	l.tell()
}

// take returns the next message of a kind. If there are more, or over is true, another goroutine
// that waits gets a value.
func (x *inbox) take(kind Kind, over bool) (m item, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := &x.lists[kind]
	if l.messages.Len() == 0 {
		return item{}, false
	}
	m = l.messages.Pop()
	if l.messages.Len() > 0 || over {
		l.tell()
	}
	return m, true
}

func (l *list) tell() {
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}
