// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"encoding/binary"

	"github.com/gpurdma/gpurdma/internal/verify"
)

// Kind is the kind of a message. It is the first byte of the message.
type Kind byte

// The kinds of messages that a program takes.
const (
	Message Kind = 1 + iota // sent by itself
	Note                    // sent after the bytes of a write

	credit  // 4 bytes: the number of credits
	summed  // a Note, followed by a trailer of package verify, and the trailer's length
	receive // of a Letter: a receive for any message
)

// String returns "message" or "notification".
func (k Kind) String() string {
	if k == Note {
		return "notification"
	}
	return "message"
}

// Sizes of a message's kind, of its number over several rails, of the number of credits, and of the
// length of a trailer, in bytes.
const (
	kindSize   = 1
	numberSize = 8
	creditSize = 4
	lengthSize = 2
)

// SumsSize is the most bytes of a message that sums take.
const SumsSize = verify.Room + lengthSize

// Letter is the message that an operation sends, or that follows its bytes, or a receive for any
// message. The zero Letter is none.
type Letter struct {
	kind    Kind
	payload []byte // until it is in its slot
	slot    int    // a sending slot of the box, counted from 1; 0 for none
	length  int    // bytes in the slot
	head    int    // of these, before the message
	posted  bool
}

// Unstamped reports whether there is a message that has no slot yet.
func (l *Letter) Unstamped() bool { return l.kind != 0 && l.slot == 0 }

// AddSums adds a trailer to a note that has room for it and no slot yet.
func (l *Letter) AddSums(trailer []byte) {
	p := make([]byte, 0, len(l.payload)+len(trailer)+lengthSize)
	p = append(append(p, l.payload...), trailer...)
	l.kind, l.payload = summed, binary.BigEndian.AppendUint16(p, uint16(len(trailer)))
}

// None reports whether there is no message.
func (l *Letter) None() bool { return l.kind == 0 }

// Own reports whether the connection posts it by itself, not the program.
func (l *Letter) Own() bool { return l.kind == credit || l.kind == receive }

// IsCredit reports whether it brings back credits.
func (l *Letter) IsCredit() bool { return l.kind == credit }

// Sent returns the number of bytes of a message that is sent by itself, without its kind: 0 before
// Stamp. ok is false for anything else.
func (l *Letter) Sent() (n int, ok bool) {
	return l.length - l.head, l.kind == Message
}

// IsReceive reports whether it is a receive.
func (l *Letter) IsReceive() bool { return l.kind == receive }
