// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/gpurdma/gpurdma/failure"
)

// ErrMalformed: a peer sent bytes that no encoder makes.
var ErrMalformed = errors.New("malformed")

// Reader decodes bytes of a peer. The first error stays in Err, and everything read
// after it is zero.
type Reader struct {
	Err  error
	what string
	b    []byte
}

// NewReader reads b. Errors say that they come from decoding a what, such as a "layout".
func NewReader(what string, b []byte) Reader { return Reader{what: what, b: b} }

// Rest are the bytes that have not been read.
func (r *Reader) Rest() []byte { return r.b }

// Fail makes an error of what was read, unless there is one already, and returns the
// first one.
func (r *Reader) Fail(format string, args ...any) error {
	if r.Err == nil {
		r.Err = &failure.Error{Op: "decode a " + r.what, Detail: fmt.Sprintf(format, args...), Err: ErrMalformed}
	}
	return r.Err
}

// End is the first error; it is one if bytes are left over.
func (r *Reader) End() error {
	if r.Err == nil && len(r.b) > 0 {
		return r.Fail("%d bytes too many", len(r.b))
	}
	return r.Err
}

// Take is the next n bytes.
func (r *Reader) Take(n int) []byte {
	if r.Err != nil {
		return nil
	}
	if n < 0 || n > len(r.b) {
		r.Fail("it ends too early")
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// Byte is the next byte.
func (r *Reader) Byte() byte {
	if b := r.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint16 is the next 2 bytes, as a big-endian number.
func (r *Reader) Uint16() uint16 {
	if b := r.Take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

// Uint32 is the next 4 bytes, as a big-endian number.
func (r *Reader) Uint32() uint32 {
	if b := r.Take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// Uint64 is the next 8 bytes, as a big-endian number.
func (r *Reader) Uint64() uint64 {
	if b := r.Take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Uvarint is the next number, as [binary.AppendUvarint] encodes it.
func (r *Reader) Uvarint() uint64 {
	if r.Err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.Fail("a number ends too early, or is too large")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Varint is the next number, as [binary.AppendVarint] encodes it.
func (r *Reader) Varint() int64 {
	if r.Err != nil {
		return 0
	}
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.Fail("a number ends too early, or is too large")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Int64 is Uvarint of a number that an int64 holds.
func (r *Reader) Int64() int64 {
	v := r.Uvarint()
	if v > math.MaxInt64 {
		r.Fail("the number %d", v)
		return 0
	}
	return int64(v)
}

// Int is Uvarint of a number that an int32 holds.
func (r *Reader) Int() int {
	v := r.Uvarint()
	if v > math.MaxInt32 {
		r.Fail("the number %d", v)
		return 0
	}
	return int(v)
}

// Count reads how many things follow, of at least size bytes each. More than the rest
// has room for is an error, so that the caller can allocate memory for the count.
func (r *Reader) Count(size int) int {
	n := r.Uvarint()
	if r.Err != nil || !r.Fits(n, size) {
		return 0
	}
	return int(n)
}

// Fits reports whether the rest has room for n things of at least size bytes each.
// If it has not, that is an error.
func (r *Reader) Fits(n uint64, size int) bool {
	if n > uint64(len(r.b)/size) {
		r.Fail("%d of something that takes %d bytes or more, in %d bytes", n, size, len(r.b))
		return false
	}
	return true
}
