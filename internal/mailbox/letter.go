// SPDX-License-Identifier: Apache-2.0

package mailbox

// Kind is the kind of a message. It is the first byte of the message.
type Kind byte

// The kinds of messages that a program takes.
const (
	Message Kind = 1 + iota // sent by itself
	Note                    // sent after the bytes of a write

	credit  // 4 bytes: the number of credits
	receive // of a Letter: a receive for any message
)

// String returns "message" or "notification".
func (k Kind) String() string {
	if k == Note {
		return "notification"
	}
	return "message"
}

// Sizes of a message's kind, and of the number of credits, in bytes.
const (
	headSize   = 1
	creditSize = 4
)

// Letter is the message that an operation sends, or that follows its bytes, or a receive for any
// message. The zero Letter is none.
type Letter struct {
	kind    Kind
	payload []byte // until it is in its slot
	slot    int    // a sending slot of the box, counted from 1; 0 for none
	length  int    // bytes in the slot
	posted  bool
}

// None reports whether there is no message.
func (l *Letter) None() bool { return l.kind == 0 }

// Own reports whether the connection posts it by itself, not the program.
func (l *Letter) Own() bool { return l.kind >= credit }

// IsCredit reports whether it brings back credits.
func (l *Letter) IsCredit() bool { return l.kind == credit }

// Sent returns the number of bytes of a message that is sent by itself, without its kind: 0 before
// Stamp. ok is false for anything else.
func (l *Letter) Sent() (n int, ok bool) {
	return max(l.length-headSize, 0), l.kind == Message
}

// IsReceive reports whether it is a receive.
func (l *Letter) IsReceive() bool { return l.kind == receive }
