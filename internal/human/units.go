// SPDX-License-Identifier: Apache-2.0

package human

import (
	"fmt"
	"strconv"
	"time"
)

// Rate writes bytes per second for people.
func Rate(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return ""
	case perSecond >= 1e9:
		return fmt.Sprintf("%.2f GB/s", perSecond/1e9)
	default:
		return fmt.Sprintf("%.1f MB/s", perSecond/1e6)
	}
}

// Duration writes a time with three significant digits at most.
func Duration(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(100 * time.Nanosecond).String()
	}
}

// Size writes a number of bytes exactly, in the largest binary unit that divides it.
func Size(n uint64) string {
	for _, u := range []struct {
		size uint64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatUint(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatUint(n, 10)
}
