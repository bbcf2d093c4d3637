// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
)

// The decoder allocates a bounded number of bytes for each byte of its input.
func TestDecodersAllocateLittle(t *testing.T) {
	tiny := []byte{byte(kindList), listFlags, 1, 0, 1, 0} // the shortest node
	concat := func(n int) []byte {
		b := binary.AppendUvarint([]byte{layoutVersion, byte(kindConcat)}, uint64(n))
		return append(b, bytes.Repeat(tiny, n)...)
	}
	extents := 200_000
	list := binary.AppendUvarint([]byte{layoutVersion, byte(kindList), listFlags}, uint64(extents))
	list = append(list, 0, 1)
	list = append(list, make([]byte, extents)...)
	for name, wire := range map[string][]byte{
		"2^60 extents":  binary.AppendUvarint([]byte{layoutVersion, byte(kindList), listFlags}, 1<<60),
		"2^60 strands":  binary.AppendUvarint([]byte{layoutVersion, byte(kindWeave), 1}, 1<<60),
		"2^60 nodes":    binary.AppendUvarint([]byte{layoutVersion, byte(kindConcat)}, 1<<60),
		"many nodes":    concat((MaxWire - 16) / len(tiny)),
		"many extents":  list,
		"nothing in it": {layoutVersion, byte(kindConcat), 0},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var l Layout
		err := l.UnmarshalBinary(wire)
		runtime.ReadMemStats(&after)
		const most = 128 // bytes for a byte
		if got := after.TotalAlloc - before.TotalAlloc; got > uint64(most*len(wire)+1<<16) {
			t.Errorf("%s: %d bytes allocated for %d (%v)", name, got, len(wire), err)
		}
		if name[:4] == "2^60" && err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
