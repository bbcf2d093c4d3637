// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/gpurdma/gpurdma/internal/wire"
)

func ExampleReader() {
	r := wire.NewReader("greeting", []byte{2, 'h', 'i', 0})
	text := r.Take(r.Count(1))
	fmt.Printf("%s\n", text)
	fmt.Println(r.End())
	// Output:
	// hi
	// decode a greeting: 1 bytes too many: malformed
}

// After an error everything is zero, and the error stays the first one.
func TestReaderFails(t *testing.T) {
	for name, read := range map[string]func(r *wire.Reader) bool{
		"too short":       func(r *wire.Reader) bool { return r.Take(30) == nil && r.Uint16() == 0 && r.Byte() == 0 },
		"too many things": func(r *wire.Reader) bool { return r.Count(4) == 0 && r.Uint32() == 0 && r.Uint64() == 0 },
		"negative":        func(r *wire.Reader) bool { return r.Take(-1) == nil && r.Varint() == 0 },
		"an int64":        func(r *wire.Reader) bool { r.Byte(); return r.Int64() == 0 && r.Uvarint() == 0 },
		"an int":          func(r *wire.Reader) bool { r.Byte(); return r.Int() == 0 && r.Uvarint() == 0 },
	} {
		r := wire.NewReader("test", binary.AppendUvarint([]byte{9}, math.MaxInt64+1))
		if !read(&r) {
			t.Errorf("%s: something was read", name)
		}
		first := r.Err
		if !errors.Is(first, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, first)
		}
		if r.Fail("another") != first || r.End() != first {
			t.Errorf("%s: %v, then %v", name, first, r.Err)
		}
	}
}
