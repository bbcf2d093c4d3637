// SPDX-License-Identifier: Apache-2.0

package bytesize

import (
	"math"
	"testing"
)

func TestFormat(t *testing.T) {
	for n, want := range map[int64]string{
		0:                  "0 B",
		-1:                 "-1 B",
		1023:               "1023 B",
		4096:               "4 KiB",
		4097:               "4.0 KiB, 4097 bytes",
		64 << 20:           "64 MiB",
		3 << 29:            "1.5 GiB",
		3<<29 + 1:          "1.5 GiB, 1610612737 bytes",
		1 << 40:            "1 TiB",
		-(1 << 30):         "-1 GiB",
		math.MaxInt64:      "8388608.0 TiB, 9223372036854775807 bytes",
		math.MinInt64 + 10: "-8388608.0 TiB, -9223372036854775798 bytes",
	} {
		if got := Format(n); got != want {
			t.Errorf("Format(%d) = %q, want %q", n, got, want)
		}
	}
}
