// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/layout"
	"golang.org/x/sys/unix"
)

// RemoteSpan is a peer's memory in an operation: Length bytes from Offset on
// (struct fi_rma_iov).
type RemoteSpan struct {
	Buf            *RemoteBuffer
	Offset, Length int64
}

// All returns all bytes of the remote buffer.
func (r *RemoteBuffer) All() RemoteSpan { return RemoteSpan{Buf: r, Length: r.Size()} }

// Part returns length bytes of the remote buffer from offset on.
func (r *RemoteBuffer) Part(offset, length int64) RemoteSpan {
	return RemoteSpan{Buf: r, Offset: offset, Length: length}
}

// Check checks a remote span as far as that is possible without the peer's NIC.
func (r *RemoteSpan) Check(op string, need ibvfd.Access) error {
	switch {
	case r.Buf == nil && r.Length == 0 && r.Offset == 0:
		return nil
	case r.Buf == nil:
		return &failure.Error{Op: op, Detail: fmt.Sprintf("a span of %d bytes names no memory of the peer", r.Length), Remedy: "name what the peer has shared", Err: unix.EINVAL}
	case !within(r.Offset, r.Length, r.Buf.Size()):
		return OutOfRange(op, r.Buf.String(), r.Offset, r.Length, r.Buf.Size())
	case r.Buf.access&need != need:
		return &failure.Error{
			Op: op, Device: r.Buf.String(), Err: unix.EACCES,
			Detail: fmt.Sprintf("it allows %v; this takes %v", r.Buf.access, need), Remedy: "the peer must share it with that access",
		}
	}
	return nil
}

// Bytes are bytes of a peer's memory, by the addresses that the peer's first NIC has for them.
type Bytes struct {
	Memory uint64 // its name
	Lo, Hi uint64 // the first address, and the one after the last
	// Blocks of Width bytes begin at Lo, and at multiples of Period from there. If Period is 0, the bytes
	// are all from Lo to Hi.
	Width, Period uint64
}

// Overlaps reports whether two have bytes in common. It returns true where it does not know: for
// blocks that lie at different distances.
func (b Bytes) Overlaps(c Bytes) bool {
	if b.Memory != c.Memory || b.Lo >= c.Hi || c.Lo >= b.Hi {
		return false
	}
	// All blocks of one are at the same place in periods of the common divisor.
	period := commonDivisor(b.Period, c.Period)
	if period == 0 || b.width() >= period || c.width() >= period {
		return true
	}
	from := (c.Lo%period + period - b.Lo%period) % period
	return from < b.width() || from+c.width() > period
}

func (b Bytes) width() uint64 {
	if b.Period == 0 {
		return b.Hi - b.Lo
	}
	return b.Width
}

func commonDivisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// fewBlocks is the number of blocks of a layout that AppendBytes looks at one by one.
const fewBlocks = 8

// AppendBytes appends the bytes of the span, and perhaps others between them.
func (r *RemoteSpan) AppendBytes(list []Bytes) []Bytes {
	if r.Buf == nil || r.Length == 0 {
		return list
	}
	add := func(x layout.Extent) {
		if x.Len == 0 {
			return
		}
		lo, hi := r.Buf.spaces[x.Source].Bounds(x.Off, x.Len)
		list = append(list, Bytes{Memory: r.Buf.memory[x.Source], Lo: lo, Hi: hi})
	}
	l := r.Buf.layout
	switch x, ok := l.Single(); {
	case ok:
		add(layout.Extent{Source: x.Source, Off: x.Off + r.Offset, Len: r.Length})
	case l.Blocks() <= fewBlocks:
		for x := range l.Part(r.Offset, r.Length) {
			add(x)
		}
	default:
		for i := range r.Buf.spaces {
			if x, ok := l.Bounds(i); ok {
				add(x)
			}
		}
		if block, stride, ok := l.Stride(); ok && len(r.Buf.spaces[block.Source].Memory) == 1 {
			last := &list[len(list)-1]
			last.Width, last.Period = uint64(block.Len), uint64(stride)
		}
	}
	return list
}

// ByteOf returns a byte of the span that lies in a memory; false if there is none.
func (r *RemoteSpan) ByteOf(mem uint64) (b RemoteSpan, ok bool) {
	at := r.Offset
	for x := range r.Buf.layout.Part(r.Offset, r.Length) {
		if r.Buf.memory[x.Source] == mem {
			return RemoteSpan{Buf: r.Buf, Offset: at, Length: 1}, true
		}
		at += x.Len
	}
	return RemoteSpan{}, false
}

// Window returns the remote memory for package lower.
func (r *RemoteSpan) Window() lower.Window {
	return lower.Window{Layout: r.Buf.layout, Spaces: r.Buf.spaces, Off: r.Offset, Len: r.Length}
}
