// SPDX-License-Identifier: Apache-2.0

package bytesize

import "fmt"

var units = []struct {
	size int64
	name string
}{
	{1 << 40, "TiB"},
	{1 << 30, "GiB"},
	{1 << 20, "MiB"},
	{1 << 10, "KiB"},
}

// Format writes n bytes exactly where a binary unit divides it ("64 MiB"), and
// otherwise with the exact number beside the rounded one ("1.5 GiB, 1610612737
// bytes"): a limit that is missed by one byte must be visible as that.
func Format(n int64) string {
	for _, u := range units {
		switch {
		case n < u.size && n > -u.size:
			continue
		case n%u.size == 0:
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		case n*10%u.size == 0 && n < 1<<50:
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		default:
			return fmt.Sprintf("%.1f %s, %d bytes", float64(n)/float64(u.size), u.name, n)
		}
	}
	return fmt.Sprintf("%d B", n)
}
