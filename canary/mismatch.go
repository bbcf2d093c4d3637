// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
)

// View reads and writes a buffer's bytes without the NIC.
type View interface {
	io.ReaderAt
	io.WriterAt
	Size() int64 // bytes
}

// HexBytes is a short run of bytes, in JSON and text as hexadecimal digits.
type HexBytes []byte

// String returns the digits.
func (h HexBytes) String() string { return hex.EncodeToString(h) }

// MarshalText implements encoding.TextMarshaler.
func (h HexBytes) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *HexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// Origin says where wrong bytes probably come from.
type Origin string

// The origins that a Mismatch can recognise.
const (
	OriginUnknown Origin = "unknown"  // bytes of no pattern of this run
	OriginStale   Origin = "stale"    // the bytes from before the transfer, which did not reach them
	OriginOlder   Origin = "older"    // bytes of an earlier pass of this run
	OriginShifted Origin = "shifted"  // right bytes in the wrong place, by the mismatch's shift
	OriginSpilled Origin = "spilled"  // the transfer's bytes, past the end that it ought to keep
	OriginZero    Origin = "zero"     // zeroes
	OriginAllOnes Origin = "all ones" // a failed PCIe read returns this
)

// Mismatch describes bytes that differ from the expected ones.
type Mismatch struct {
	What     string   `json:"what"`     // the bytes that were compared, in words
	Offset   int64    `json:"offset"`   // the first wrong byte, from the start of the buffer
	Last     int64    `json:"last"`     // the last wrong byte, from the start of the buffer
	Count    int64    `json:"count"`    // how many bytes are wrong
	Expected HexBytes `json:"expected"` // up to 16 bytes that belong at Offset, in hexadecimal
	Got      HexBytes `json:"got"`      // up to 16 bytes that were found at Offset, in hexadecimal
	Origin   Origin   `json:"origin"`   // where the bytes that were found probably come from
	// Shift is how far the bytes at Offset are from their right place, of the origin "shifted" only:
	// bytes for offset x are at x+Shift.
	Shift int64 `json:"shift,omitempty"`
	// LandedAt is the offset in the buffer at which the bytes for Offset were found; -1 if they were
	// found nowhere.
	LandedAt int64 `json:"landed_at"`
}

// Error describes the bytes in one line.
func (m *Mismatch) Error() string {
	s := fmt.Sprintf("%s: %d wrong byte(s) from offset %#x to %#x: expected %v, got %v", m.What, m.Count, m.Offset, m.Last, m.Expected, m.Got)
	switch m.Origin {
	case OriginStale:
		s += "; they still hold what was there before: the transfer did not reach them"
	case OriginOlder:
		s += "; they are left from an earlier pass"
	case OriginShifted:
		s += fmt.Sprintf("; they are this pass's bytes, shifted by %+#x", m.Shift)
	case OriginSpilled:
		s += "; the transfer went beyond its range"
	case OriginZero:
		s += "; zeroes"
	case OriginAllOnes:
		s += "; all ones, as a failed PCIe read returns"
	}
	if m.LandedAt >= 0 {
		s += fmt.Sprintf("; the expected bytes were found at offset %#x (%+#x)", m.LandedAt, m.LandedAt-m.Offset)
	}
	return s
}

const (
	shown  = 16            // bytes shown of a mismatch
	sample = 3 * blockSize // bytes kept to guess from
	stride = 64 << 10      // bytes compared at a time
)

// comparer collects the differences of one check, which may come in pieces.
type comparer struct {
	what     string
	want     pattern
	moved    pattern // the bytes that the transfer under test carries
	m        *Mismatch
	got      []byte // a sample of the bytes at the first mismatch
	verified int64
	scratch  []byte
}

func newComparer(what string, want, moved pattern) *comparer {
	return &comparer{what: what, want: want, moved: moved, scratch: make([]byte, stride)}
}

// check compares got with the pattern's bytes from off on.
func (c *comparer) check(got []byte, off int64) {
	for len(got) > 0 {
		n := min(len(got), len(c.scratch))
		want := c.scratch[:n]
		c.want.fill(want, off)
		if bytes.Equal(want, got[:n]) {
			c.verified += int64(n)
		} else {
			c.differ(want, got, off)
		}
		got, off = got[n:], off+int64(n)
	}
}

// differ counts the wrong bytes of one stretch; got may be longer than want.
func (c *comparer) differ(want, got []byte, off int64) {
	for i, w := range want {
		if got[i] == w {
			c.verified++
			continue
		}
		at := off + int64(i)
		if c.m == nil {
			c.got = bytes.Clone(got[i:min(i+sample, len(got))])
			n := min(shown, len(want)-i)
			c.m = &Mismatch{
				What: c.what, Offset: at, LandedAt: -1, Origin: OriginUnknown,
				Expected: bytes.Clone(want[i : i+n]), Got: bytes.Clone(got[i : i+n]),
			}
		}
		c.m.Last = at
		c.m.Count++
	}
}

// view compares the buffer's bytes [s.off, s.end) as its view shows them.
func (c *comparer) view(ctx context.Context, v View, s span) error {
	buf := make([]byte, min(stride, s.len))
	for off := s.off; off < s.end(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := buf[:min(int64(len(buf)), s.end()-off)]
		if n, err := v.ReadAt(b, off); n < len(b) {
			return fmt.Errorf("read the buffer at offset %#x: %w", off, err)
		}
		c.check(b, off)
		off += int64(len(b))
	}
	return nil
}

// mismatch is the result, with its origin guessed; nil if all bytes were right.
// older are the patterns of earlier passes.
func (c *comparer) mismatch(older []pattern) *Mismatch {
	m := c.m
	if m == nil {
		return nil
	}
	before := make([]byte, len(m.Got))
	c.moved.complement().fill(before, m.Offset)
	at, moved := c.moved.locate(c.got)
	switch {
	case moved && at != m.Offset:
		m.Origin, m.Shift = OriginShifted, m.Offset-at
	case moved && c.want != c.moved:
		m.Origin = OriginSpilled
	case c.want == c.moved && bytes.Equal(before, m.Got):
		m.Origin = OriginStale
	case all(m.Got, 0):
		m.Origin = OriginZero
	case all(m.Got, 0xff):
		m.Origin = OriginAllOnes
	case madeBy(older, c.got):
		m.Origin = OriginOlder
	}
	return m
}

func madeBy(patterns []pattern, b []byte) bool {
	for _, p := range patterns {
		if _, ok := p.locate(b); ok {
			return true
		}
		if _, ok := p.complement().locate(b); ok {
			return true
		}
	}
	return false
}

func all(b []byte, v byte) bool { return bytes.Count(b, []byte{v}) == len(b) }

// landed looks for the bytes that ought to stand at off anywhere else in v.
// Fewer than eight bytes can turn up by chance and are not looked for.
func landed(v View, expected []byte, off int64) int64 {
	if len(expected) < 8 {
		return -1
	}
	buf := make([]byte, stride+len(expected))
	for at := int64(0); at < v.Size(); at += stride {
		b := buf[:min(int64(len(buf)), v.Size()-at)]
		if n, _ := v.ReadAt(b, at); n < len(b) {
			return -1
		}
		if i := bytes.Index(b, expected); i >= 0 && at+int64(i) != off {
			return at + int64(i)
		}
	}
	return -1
}
