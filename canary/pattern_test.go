// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"bytes"
	"math"
	"testing"
)

func TestMixIsInvertible(t *testing.T) {
	for _, x := range []uint64{0, 1, 2, 0xffff, 1 << 31, 1 << 63, math.MaxUint64, 0x123456789abcdef} {
		if got := unmix(mix(x)); got != x {
			t.Errorf("unmix(mix(%#x)) = %#x", x, got)
		}
	}
}

// The same byte must come out however the range is cut.
func TestFillIsAFunctionOfTheOffset(t *testing.T) {
	p := newPattern(7, 3)
	whole := make([]byte, 200)
	p.fill(whole, 0)
	for off := range 40 {
		for n := range 60 {
			part := make([]byte, n)
			p.fill(part, int64(off))
			if !bytes.Equal(part, whole[off:off+n]) {
				t.Fatalf("fill(%d bytes at %d) = %x, want %x", n, off, part, whole[off:off+n])
			}
		}
	}
}

func TestComplementDiffersInEveryByte(t *testing.T) {
	p := newPattern(1, 1)
	a, b := make([]byte, 1000), make([]byte, 1000)
	p.fill(a, 5)
	p.complement().fill(b, 5)
	for i := range a {
		if a[i]^b[i] != 0xff {
			t.Fatalf("byte %d: %#x and %#x share bits", i, a[i], b[i])
		}
	}
}

func TestLocate(t *testing.T) {
	p := newPattern(42, 0)
	for _, q := range []pattern{p, p.complement()} {
		for _, off := range []int64{0, 1, 15, 16, 17, 4095, 1 << 40} {
			b := make([]byte, 2*blockSize-1)
			q.fill(b, off)
			if got, ok := q.locate(b); !ok || got != off {
				t.Errorf("locate(bytes of %#x) = %#x, %v", off, got, ok)
			}
			for name, other := range map[string]pattern{"complement": q.complement(), "other seed": newPattern(43, 0), "other generation": newPattern(42, 1)} {
				if got, ok := other.locate(b); ok {
					t.Errorf("%s claims bytes of %#x for %#x", name, off, got)
				}
			}
		}
	}
	if off, ok := p.locate(make([]byte, 64)); ok {
		t.Errorf("zeroes were located at %#x", off)
	}
}

func FuzzLocateDoesNotPanic(f *testing.F) {
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		newPattern(1, 1).locate(b)
	})
}
