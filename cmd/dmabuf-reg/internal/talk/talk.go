// SPDX-License-Identifier: Apache-2.0

package talk

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Version is the protocol's. Both sides must have the same.
const Version = 3

// MaxMessage is more than any message of any version, in bytes.
const MaxMessage = 1 << 10

const (
	magic      = 0x67726474 // "grdt"
	headSize   = 10
	answerBit  = 1 << 15 // of the version: an answer
	maxText    = 512
	maxCount   = 1 << 20
	sampleSize = 16
)

var (
	// ErrMalformed is a message that cannot be.
	ErrMalformed = errors.New("malformed message")
	// ErrVersion is a message of another version.
	ErrVersion = errors.New("another version of the protocol")
)

// Kind is what a request asks for.
type Kind uint8

// The requests.
const (
	Hello   Kind = 1 + iota // ask for a description of the other side, and for its buffer
	Offered                 // take the descriptor of my buffer, which I have offered
	Fill                    // put the bytes of Seed into a range
	Check                   // compare a range with them
	Receive                 // be ready for Count messages of Size bytes
	Run                     // carry out Count operations towards my buffer
	Word                    // put Value into the 8 bytes at Offset, if Set; say what is there
	Bye                     // I am done
	kinds
)

var kindNames = [kinds]string{"", "hello", "offered", "fill", "check", "receive", "run", "word", "bye"}

// String names the request.
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", k)
}

// Op is an operation of RDMA.
type Op uint8

// The operations.
const (
	Write Op = 1 + iota
	Read
	Send
	Atomic
	ops
)

var opNames = [ops]string{"", "write", "read", "send", "atomic"}

// String names the operation, as it is written on the command line.
func (o Op) String() string {
	if o < ops {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", o)
}

// Ops are all operations.
func Ops() []Op { return []Op{Write, Read, Send, Atomic} }

// ParseOp reads an operation's name.
func ParseOp(s string) (Op, error) {
	for _, o := range Ops() {
		if s == o.String() {
			return o, nil
		}
	}
	return 0, fmt.Errorf("%q is no operation: there are write, read, send and atomic", s)
}

// Work is Count operations of Size bytes each, on Slots places one after the
// other from Offset on: operation i is on place i modulo Slots.
type Work struct {
	Offset, Size int64
	Count, Slots int
}

// Bytes is how many bytes the places take.
func (w Work) Bytes() int64 { return w.Size * int64(w.Slots) }

// At is where operation i has its bytes.
func (w Work) At(i int) int64 { return w.Offset + w.Size*int64(i%w.Slots) }

// Within reports whether the work stays in size bytes.
func (w Work) Within(size int64) bool {
	return w.Offset >= 0 && w.Size > 0 && w.Count > 0 && w.Slots > 0 && w.Slots <= w.Count &&
		w.Offset <= size && w.Size <= (size-w.Offset)/int64(w.Slots)
}

// Request is what the client asks. What its Kind does not need is zero.
type Request struct {
	ID    uint32
	Kind  Kind
	Op    Op   // Run
	Flip  bool // Fill, Check: the complement of the bytes
	Set   bool // Word
	Work       // Receive, Run; of Fill, Check and Word Offset, and Size as the range's length
	Seed  uint64
	Value uint64 // Word; of Run of atomics the value before
}

const requestSize = headSize + 4 + 2*8 + 2*4 + 2*8

func head(b []byte, version uint16, id uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, magic)
	b = binary.BigEndian.AppendUint16(b, version)
	return binary.BigEndian.AppendUint32(b, id)
}

// behead checks how a message begins, and returns its number, even with
// ErrVersion, and the rest.
func behead(b []byte, want uint16) (uint32, []byte, error) {
	if len(b) < headSize || len(b) > MaxMessage || binary.BigEndian.Uint32(b) != magic {
		return 0, nil, fmt.Errorf("%w: %d bytes that do not begin as they should", ErrMalformed, len(b))
	}
	version, id := binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint32(b[6:])
	switch {
	case version&answerBit != want&answerBit:
		return id, nil, fmt.Errorf("%w: a request in the place of an answer, or the reverse", ErrMalformed)
	case version != want:
		return id, nil, fmt.Errorf("%w: the peer speaks version %d, this program %d", ErrVersion, version&^answerBit, Version)
	}
	return id, b[headSize:], nil
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Append encodes the request.
func (r *Request) Append(b []byte) []byte {
	b = head(b, Version, r.ID)
	b = append(b, byte(r.Kind), byte(r.Op), flag(r.Flip), flag(r.Set))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Offset))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Size))
	b = binary.BigEndian.AppendUint32(b, uint32(r.Count))
	b = binary.BigEndian.AppendUint32(b, uint32(r.Slots))
	b = binary.BigEndian.AppendUint64(b, r.Seed)
	return binary.BigEndian.AppendUint64(b, r.Value)
}

// Decode reads a request that a client sent. Whatever it accepts stays, for
// the kinds that have ranges, within a buffer of size bytes. With ErrVersion
// the ID is set.
func (r *Request) Decode(data []byte, size int64) error {
	id, b, err := behead(data, Version)
	*r = Request{ID: id}
	if err != nil {
		return err
	}
	if len(data) != requestSize || b[0] == 0 || b[0] >= byte(kinds) || b[1] >= byte(ops) || b[2] > 1 || b[3] > 1 {
		return fmt.Errorf("%w: %d bytes, kind, operation and flags % x", ErrMalformed, len(data), b[:min(4, len(b))])
	}
	q := Request{ID: id, Kind: Kind(b[0]), Op: Op(b[1]), Flip: b[2] == 1, Set: b[3] == 1}
	q.Offset, q.Size = int64(binary.BigEndian.Uint64(b[4:])), int64(binary.BigEndian.Uint64(b[12:]))
	count, slots := binary.BigEndian.Uint32(b[20:]), binary.BigEndian.Uint32(b[24:])
	q.Count, q.Slots = int(min(count, maxCount)), int(min(slots, maxCount))
	q.Seed, q.Value = binary.BigEndian.Uint64(b[28:]), binary.BigEndian.Uint64(b[36:])
	if count > maxCount || slots > maxCount || !q.sound(size) {
		return fmt.Errorf("%w: %s of %d bytes at %d, %d times on %d places, in a buffer of %d bytes", ErrMalformed, q.Kind, q.Size, q.Offset, count, slots, size)
	}
	*r = q
	return nil
}

func (r *Request) sound(size int64) bool {
	switch r.Kind {
	case Fill, Check:
		return Work{Offset: r.Offset, Size: r.Size, Count: 1, Slots: 1}.Within(size)
	case Word:
		return r.Size == 8 && r.Offset%8 == 0 && Work{Offset: r.Offset, Size: 8, Count: 1, Slots: 1}.Within(size)
	case Receive:
		return r.Within(size)
	case Run:
		if r.Op == Atomic && (r.Size != 8 || r.Slots != 1 || r.Offset%8 != 0) {
			return false
		}
		return r.Op != 0 && r.Within(size)
	}
	return true
}

// Status is how a request went.
type Status uint8

// The ways.
const (
	Done    Status = 1 + iota
	Failed         // Text says why
	Busy           // another client has the buffer
	Differs        // the versions do
	states
)

// Answer is what the server says.
type Answer struct {
	ID      uint32
	Status  Status
	Value   uint64    // Hello: the buffer's size. Run: nanoseconds. Bye: messages that never came, over several NICs. Fits an int64
	Extra   uint64    // Hello: messages that may be received at once. Run: wrong results of atomics. Word: its value. Bye: messages that came twice
	Finding           // Check
	Text    [4]string // Failed: why. Hello: the memory, the NIC, the path by which the one reaches the other, and its reason
}

// Append encodes the answer. Text that is too long is cut.
func (a *Answer) Append(b []byte) []byte {
	b = head(b, Version|answerBit, a.ID)
	b = append(b, byte(a.Status))
	b = binary.BigEndian.AppendUint64(b, a.Value)
	b = binary.BigEndian.AppendUint64(b, a.Extra)
	for _, n := range []int64{a.Wrong, a.First, a.Last} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	for _, s := range [][]byte{a.Want, a.Got} {
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	room := maxText
	for _, s := range a.Text {
		s = s[:min(len(s), room)]
		room -= len(s)
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	return b
}

// Decode reads an answer that a server sent.
func (a *Answer) Decode(data []byte) error {
	id, b, err := behead(data, Version|answerBit)
	*a = Answer{ID: id}
	if err != nil {
		return err
	}
	bad := fmt.Errorf("%w: an answer of %d bytes", ErrMalformed, len(data))
	const numbers = 1 + 5*8
	if len(b) < numbers || b[0] == 0 || b[0] >= byte(states) {
		return bad
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[1+8*i:]) }
	out := Answer{ID: id, Status: Status(b[0]), Value: n(0), Extra: n(1)}
	out.Wrong, out.First, out.Last = int64(n(2)), int64(n(3)), int64(n(4))
	if out.Wrong < 0 || out.First < 0 || out.Last < out.First || int64(out.Value) < 0 {
		return bad
	}
	b = b[numbers:]
	for _, s := range []*[]byte{&out.Want, &out.Got} {
		if len(b) < 1 || b[0] > sampleSize || len(b) < 1+int(b[0]) {
			return bad
		}
		if b[0] > 0 {
			*s = append([]byte(nil), b[1:1+b[0]]...)
		}
		b = b[1+b[0]:]
	}
	for i := range out.Text {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return bad
		}
		end := 2 + int(binary.BigEndian.Uint16(b))
		out.Text[i], b = printable(b[2:end]), b[end:]
	}
	if len(b) > 0 {
		return bad
	}
	*a = out
	return nil
}

// printable makes the text of a peer, which is not trusted, fit for a terminal.
func printable(b []byte) string {
	out := []rune(string(b))
	for i, r := range out {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\uFFFD' {
			out[i] = '?'
		}
	}
	return string(out)
}
