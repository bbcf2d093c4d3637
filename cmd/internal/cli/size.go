// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
)

// Size is a flag value in bytes: 4096, 0x1000, 64KiB, 8G. It covers the whole
// of uint64, so that offsets and addresses fit as well.
type Size uint64

// suffixes follow dd(1) and the IEC: K and KiB are 1024, KB is 1000.
var suffixes = map[string]uint64{
	"": 1, "b": 1,
	"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
}

// ParseSize reads a number of bytes.
func ParseSize(s string) (uint64, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	isDigit := func(r rune) bool { return r >= '0' && r <= '9' }
	base, digits := 10, text
	if hex, ok := strings.CutPrefix(text, "0x"); ok {
		base, digits = 16, hex
		isDigit = func(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'f' }
	}
	end := strings.IndexFunc(digits, func(r rune) bool { return !isDigit(r) })
	if end < 0 {
		end = len(digits)
	}
	unit, known := suffixes[strings.TrimSpace(digits[end:])]
	if end == 0 || !known || base == 16 && end != len(digits) {
		return 0, fmt.Errorf("%q is not a number of bytes: write 4096, 0x1000, 64KiB, 1MiB or 8G", s)
	}
	n, err := strconv.ParseUint(digits[:end], base, 64)
	over, n := bits.Mul64(n, unit)
	if err != nil || over != 0 {
		return 0, fmt.Errorf("%q is more than 64 bits hold", s)
	}
	return n, nil
}

// Set implements pflag.Value.
func (v *Size) Set(s string) error {
	n, err := ParseSize(s)
	if err == nil {
		*v = Size(n)
	}
	return err
}

// String is the shortest exact form.
func (v *Size) String() string { return human.Size(uint64(*v)) }

// Type implements pflag.Value; it stands for the value in --help.
func (v *Size) Type() string { return "SIZE" }

// Int64 is the size of something, as kernel interfaces take it.
func (v *Size) Int64() (int64, error) {
	if *v == 0 {
		return 0, errors.New("a size of 0 is nothing: give 1 byte or more")
	}
	if uint64(*v) > math.MaxInt64 {
		return 0, fmt.Errorf("%d bytes are more than any buffer can have", uint64(*v))
	}
	return int64(*v), nil
}

// ParseSizes reads the values of a flag that takes several sizes.
func ParseSizes(list []string) (sizes []int64, err error) {
	for _, s := range list {
		var n Size
		if err := n.Set(s); err != nil {
			return nil, err
		}
		size, err := n.Int64()
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, size)
	}
	if len(sizes) == 0 {
		return nil, errors.New("no sizes were given")
	}
	return sizes, nil
}
