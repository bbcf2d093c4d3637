// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Every bit of the memory that is wrong is found, in its block, and nothing else is.
func TestCompare(t *testing.T) {
	r := testenv.Seeded(t)
	mem := make(memory, 300_000)
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	x := must(Decode(must(Make(All, "write", whole(300_000), 300_000, mem))(t)))(t)
	flushed := 0
	flush := func() error { flushed++; return nil }
	if bad := must(x.Compare(mem, flush))(t); len(bad) != 0 || flushed != 1 {
		t.Errorf("%+v, flushed %d times", bad, flushed)
	}
	for range 2000 {
		i, bit := r.Int64N(300_000), byte(1)<<r.IntN(8)
		mem[i] ^= bit
		flushed = 0
		bad := must(x.Compare(mem, flush))(t)
		if len(bad) != 1 || bad[0].Off > i || bad[0].Off+bad[0].Len <= i || bad[0].Found == bad[0].Value || flushed != 2 {
			t.Fatalf("byte %d: %+v, flushed %d times", i, bad, flushed)
		}
		mem[i] ^= bit
	}
	// Bytes that are there at the second look are right.
	late := slices.Clone(mem)
	late[5] ^= 1
	flushed = 0
	bad, err := x.Compare(late, func() error {
		if flushed++; flushed == 2 {
			copy(late, mem)
		}
		return nil
	})
	if len(bad) != 0 || err != nil || flushed != 2 {
		t.Errorf("%+v, %v, flushed %d times", bad, err, flushed)
	}
	broken := errors.New("the GPU has gone")
	if _, err := x.Compare(failing{broken}, flush); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := x.Compare(mem, func() error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// Bytes of several sources are those of one after the other.
func TestJoined(t *testing.T) {
	r := testenv.Seeded(t)
	var j Joined
	var all []byte
	for i := range 20 {
		m := make(memory, r.IntN(30))
		for k := range m {
			m[k] = byte(i)
		}
		j, all = append(j, Part{m, int64(len(m))}), append(all, m...)
	}
	for range 1000 {
		off := r.Int64N(int64(len(all)))
		n := r.Int64N(int64(len(all)) - off + 1)
		var got []byte
		if err := j.Each(off, n, func(p []byte) { got = append(got, p...) }); err != nil || !bytes.Equal(got, all[off:off+n]) {
			t.Fatalf("%d bytes at %d: %v, %v", n, off, got, err)
		}
	}
}

// Memory that is named more often than it has bytes is found.
func TestRepeats(t *testing.T) {
	x := &Trailer{Pieces: []Piece{{Memory: 1, Len: 6}, {Memory: 2, Len: 5}, {Memory: 1, Len: 4}}}
	for most, want := range map[int64]bool{9: true, 10: false} {
		if got := x.Repeats(func(m uint64) int64 { return most }); got != want {
			t.Errorf("memory of %d bytes: %v", most, got)
		}
	}
}
