// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// ErrMalformed: a peer sent something that cannot be.
var ErrMalformed = errors.New("malformed")

// reader decodes what a peer sent. The first error sticks, and everything read
// after it is zero.
type reader struct {
	what string // "layout"
	b    []byte
	err  error
}

func (r *reader) bad(format string, args ...any) error {
	if r.err == nil {
		r.err = &dmabuf.Error{Op: "decode a " + r.what, Detail: fmt.Sprintf(format, args...), Err: ErrMalformed}
	}
	return r.err
}

// end is the error so far, or that something is left over.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return r.bad("%d bytes too many", len(r.b))
	}
	return r.err
}

// take is the next n bytes.
func (r *reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.b) {
		r.bad("it ends too early")
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad("a number ends too early, or is too large")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad("a number ends too early, or is too large")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int64() int64 {
	v := r.uvarint()
	if v > math.MaxInt64 {
		r.bad("the number %d", v)
		return 0
	}
	return int64(v)
}

func (r *reader) int() int {
	v := r.uvarint()
	if v > math.MaxInt32 {
		r.bad("the number %d", v)
		return 0
	}
	return int(v)
}

// count is the number of things that follow, each of at least size bytes: no
// more than there is room for, so that memory can be allocated for them.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if r.err != nil || !r.fits(n, size) {
		return 0
	}
	return int(n)
}

func (r *reader) fits(n uint64, size int) bool {
	if n > uint64(len(r.b)/size) {
		r.bad("%d of something that takes %d bytes or more, in %d bytes", n, size, len(r.b))
		return false
	}
	return true
}
