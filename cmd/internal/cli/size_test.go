// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"math"
	"testing"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]uint64{
		"0": 0, "1": 1, "4096": 4096, "0x1000": 4096, "0X1F": 31, "0xb": 11,
		"64KiB": 64 << 10, "64k": 64 << 10, "1MiB": 1 << 20, "8G": 8 << 30, "2 GiB": 2 << 30, "1T": 1 << 40,
		"1kB": 1000, "3MB": 3e6, "7b": 7,
		"0xffffffffffffffff": math.MaxUint64, "18446744073709551615": math.MaxUint64,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", " ", "x", "-1", "1.5G", "12 parsecs", "0x", "0x10KiB", "KiB", "18446744073709551616", "16777216T", "1_000"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", in, got)
		}
	}
}

func TestSizeFlagRoundTrip(t *testing.T) {
	for _, n := range []uint64{0, 1, 1023, 1024, 1 << 20, 3 << 30, 1<<30 + 1, math.MaxUint64} {
		v := Size(n)
		var back Size
		if err := back.Set(v.String()); err != nil || back != v {
			t.Errorf("%d is written as %q and read as %d, %v", n, v.String(), back, err)
		}
	}
	v := Size(math.MaxUint64)
	if n, err := v.Int64(); err == nil {
		t.Errorf("Int64 = %d, want an error", n)
	}
}

func FuzzParseSize(f *testing.F) {
	f.Add("64KiB")
	f.Fuzz(func(t *testing.T, s string) { _, _ = ParseSize(s) })
}
