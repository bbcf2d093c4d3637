// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/internal/wire"
	"github.com/gpurdma/gpurdma/layout"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// memory is bytes that are summed, in parts of random lengths.
type memory []byte

func (m memory) Each(off, n int64, f func([]byte)) error {
	if off < 0 || n < 0 || off+n > int64(len(m)) {
		return failure.ErrRange
	}
	for n > 0 {
		k := 1 + rand.Int64N(n)
		f(m[off : off+k])
		off, n = off+k, n-k
	}
	return nil
}

// endless has as many bytes as one wants, none of which is read.
type endless struct{}

func (endless) Each(int64, int64, func([]byte)) error { return nil }

func whole(n int64) []Piece { return []Piece{{Memory: 7, Len: n, Size: n}} }

// What Make makes is what Decode returns, with the sums of the blocks; it fits, whatever the size is.
func TestMake(t *testing.T) {
	r := testenv.Seeded(t)
	shape := must(layout.Interleaved(layout.Extent{Source: 1, Off: 3, Len: 50}, layout.Dim{Count: 1 << 20, Stride: 77}))(t)
	for _, mode := range []Mode{All, Sampled} {
		for _, total := range []int64{1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 5_000_001, 50 << 20} {
			src := make(memory, total)
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			a := r.Int64N(total)
			pieces := []Piece{{Memory: 1 << 63, Own: true, Layout: shape, Off: 9, Len: total - a, Size: total + 1}}
			if a > 0 {
				pieces = append(pieces, Piece{Memory: 5, Off: 1 << 40, Len: a, Size: a})
			}
			data := must(Make(mode, "write", pieces, total, src))(t)
			if data == nil && mode == Sampled {
				continue
			}
			if len(data) > Room {
				t.Errorf("%d bytes: a trailer of %d", total, len(data))
			}
			x := must(Decode(data))(t)
			if x.Total != total || len(x.Pieces) != len(pieces) || x.Pieces[0].Memory != 1<<63 || !x.Pieces[0].Own || x.Pieces[0].Off != 9 || x.Pieces[0].Layout.Size() != shape.Size() || a > 0 && (x.Pieces[1].Off != 1<<40 || x.Pieces[1].Len != a || x.Pieces[1].Own) {
				t.Errorf("%d bytes: %+v", total, x)
			}
			next := int64(0)
			for _, s := range x.Sums {
				if s.Off < next || mode == All && s.Off != next || s.Len <= 0 || s.Off+s.Len > total || s.Off%(64<<10) != 0 {
					t.Fatalf("%d bytes: a block of %d at %d", total, s.Len, s.Off)
				}
				if next = s.Off + s.Len; s.Value != crc32.Checksum(src[s.Off:next], crc32.MakeTable(crc32.Castagnoli)) {
					t.Errorf("%d bytes: a wrong sum of the block at %d", total, s.Off)
				}
			}
			if mode == All && next != total {
				t.Errorf("%d bytes: sums of %d", total, next)
			}
		}
	}
}

// Sums of any size fit, up to the largest.
func TestMakeFits(t *testing.T) {
	for _, mode := range []Mode{All, Sampled} {
		for total := int64(1); total > 0; total = total<<1 + 12345 {
			pieces := whole(total)
			for i := range 200 {
				data := must(Make(mode, "write", pieces, total, endless{}))(t)
				if mode == Sampled && i%2 == 0 {
					c := ChooseOne(total)
					data = must(c.Make("write", pieces, endless{}))(t)
				}
				if data == nil {
					continue
				}
				if x := must(Decode(data))(t); len(data) > Room || x.Total != total || len(x.Sums) == 0 {
					t.Fatalf("%d bytes: a trailer of %d, of %d", total, len(data), x.Total)
				}
				if mode == All || i > 20 && total < 1<<22 {
					break
				}
			}
		}
	}
}

// Each block is drawn about once in a hundred times, whatever the size of an operation is.
func TestSampling(t *testing.T) {
	for _, n := range []int64{1, 2, 7, 100, 1000, 3000, 100_000, 1 << 30} {
		rounds := int(min(200_000, 20_000_000/min(n, 3000)))
		total, drawn := n<<leastShift, int64(0)
		chosen := [10]int{} // by place in the operation
		for range rounds {
			c := choose(total, 400)
			for _, i := range c.list {
				off, size := block(total, c.shift, i)
				drawn += size
				chosen[min(off*10/max(total/1, 1), 9)%10]++
			}
		}
		if part := float64(drawn) / float64(total) / float64(rounds); part < 0.008 || part > 0.012 {
			t.Errorf("%d blocks: %.4f of the bytes were chosen", n, part)
		}
		if n < 1000 || n > 100_000 {
			continue
		}
		sum := 0
		for _, k := range chosen {
			sum += k
		}
		for i, k := range chosen {
			if k < sum/20 || k > sum/5 {
				t.Errorf("%d blocks: %d of %d were chosen in tenth %d", n, k, sum, i)
			}
		}
	}
}

// Two draws of many blocks are not the same.
func TestSamplingIsDrawnAnew(t *testing.T) {
	a := choose(1000<<leastShift, 400).list
	for range 100 {
		if b := choose(1000<<leastShift, 400).list; len(a) != len(b) || len(a) > 0 && a[0] != b[0] {
			return
		}
	}
	t.Error("the same blocks a hundred times")
}

// A destination that cannot be described or checked is refused, with a remedy.
func TestMakeRefuses(t *testing.T) {
	var extents []layout.Extent
	for i := range int64(250) {
		extents = append(extents, layout.Extent{Off: 300 * i, Len: 100 + i%3})
	}
	long := must(layout.SG(extents...))(t)
	var many []Piece
	for i := range uint64(50) {
		many = append(many, Piece{Memory: i, Len: 5, Size: 10})
	}
	for name, x := range map[string]struct {
		pieces []Piece
		want   error
		word   string
	}{
		"a long layout": {[]Piece{{Own: true, Layout: long, Len: 10, Size: 1 << 20}}, failure.ErrLimit, "shorter layout"},
		"many pieces":   {many, failure.ErrLimit, "fewer pieces"},
		"twice":         {[]Piece{{Memory: 1, Len: 10, Size: 15}, {Memory: 2, Len: 9, Size: 15}, {Memory: 1, Len: 6, Size: 15}}, nil, "twice"},
	} {
		for _, mode := range []Mode{All, Sampled} {
			if _, err := Make(mode, "write", x.pieces, 10, endless{}); err == nil || x.want != nil && !errors.Is(err, x.want) || !strings.Contains(err.Error(), x.word) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// Pieces that continue one another are one.
	for i := range many {
		many[i] = Piece{Memory: 3, Off: 5 * int64(i), Len: 5, Size: 250}
	}
	if x := must(Decode(must(Make(All, "write", many, 250, endless{}))(t)))(t); len(x.Pieces) != 1 || x.Pieces[0].Len != 250 {
		t.Errorf("%+v", x.Pieces)
	}
	broken := errors.New("the GPU has gone")
	if _, err := Make(All, "write", whole(5), 5, failing{broken}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type failing struct{ error }

func (f failing) Each(int64, int64, func([]byte)) error { return f.error }

// trailers returns trailers that are right.
func trailers(t testing.TB) (list [][]byte) {
	shape := must(layout.Interleaved(layout.Extent{Len: 50}, layout.Dim{Count: 100, Stride: 77}))(t)
	list = append(list, must(Make(All, "write", whole(200_000), 200_000, endless{}))(t))
	list = append(list, must(Make(All, "write", []Piece{{Memory: 9, Own: true, Layout: shape, Len: 5000, Size: 10_000}}, 5000, endless{}))(t))
	for {
		if data := must(Make(Sampled, "write", whole(50<<20), 50<<20, endless{}))(t); len(data) > 0 {
			return append(list, data)
		}
	}
}

// Trailers that no peer makes are malformed.
func TestDecodeRefuses(t *testing.T) {
	piece := func(own byte, off, n uint64) []byte {
		b := append(binary.BigEndian.AppendUint64(nil, 1), own)
		return binary.AppendUvarint(binary.AppendUvarint(b, off), n)
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	sum := []byte{1, 2, 3, 4}
	for name, data := range map[string][]byte{
		"nothing":               nil,
		"no mode":               join([]byte{0, 16, 1}, piece(0, 0, 5), sum),
		"another mode":          join([]byte{3, 16, 1}, piece(0, 0, 5), sum),
		"small blocks":          join([]byte{2, 15, 1}, piece(0, 0, 5), sum),
		"large blocks":          join([]byte{2, 63, 1}, piece(0, 0, 5), sum),
		"no pieces":             {2, 16, 0},
		"many pieces":           join([]byte{2, 16, 200}, piece(0, 0, 5), sum),
		"an empty piece":        join([]byte{2, 16, 1}, piece(0, 0, 0)),
		"another kind":          join([]byte{2, 16, 1}, piece(2, 0, 5), sum),
		"no layout":             join([]byte{2, 16, 1}, piece(1, 0, 5), sum),
		"a large offset":        join([]byte{2, 16, 1}, piece(0, 1<<63, 5), sum),
		"too many bytes":        join([]byte{2, 62, 2}, piece(0, 0, 1<<62), piece(0, 0, 1<<62), sum, sum),
		"no sums":               join([]byte{2, 16, 1}, piece(0, 0, 5)),
		"a sum too many":        join([]byte{2, 16, 1}, piece(0, 0, 5), sum, sum),
		"a sum too few":         join([]byte{2, 16, 1}, piece(0, 0, 1<<17), sum),
		"no chosen block":       join([]byte{1, 16, 1}, piece(0, 0, 5), []byte{0}),
		"a block too far":       join([]byte{1, 16, 1}, piece(0, 0, 5), []byte{1, 1}, sum),
		"two of one block":      join([]byte{1, 16, 1}, piece(0, 0, 5), []byte{2, 0}, sum, []byte{0}, sum),
		"a block very far":      join([]byte{1, 16, 1}, piece(0, 0, 5), []byte{1}, binary.AppendUvarint(nil, 1<<63-1), sum),
		"a long one":            make([]byte, Room+1),
		"beyond its own layout": join([]byte{2, 16, 1}, binary.BigEndian.AppendUint64(nil, 1), []byte{1, 1, 1, 0, 5}, sum),
	} {
		if x, err := Decode(data); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, x, err)
		}
	}
	for _, data := range trailers(t) {
		must(Decode(data))(t)
		for i := range data {
			if _, err := Decode(data[:i]); !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%d of %d bytes: %v", i, len(data), err)
			}
		}
	}
}

// No bytes of a peer make Decode fail in another way, or accept what names blocks outside of the
// operation.
func FuzzDecode(f *testing.F) {
	for _, data := range trailers(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := Decode(data)
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		next := int64(0)
		for _, s := range x.Sums {
			if s.Off < next || s.Len <= 0 || s.Len > x.Total-s.Off {
				t.Fatalf("%d bytes at %d of %d", s.Len, s.Off, x.Total)
			}
			next = s.Off + s.Len
			if p, at := x.Piece(s.Off); p == nil || at < p.Off || at >= p.Off+p.Len {
				t.Fatalf("byte %d is at %d of %+v", s.Off, at, p)
			}
		}
	})
}
