// SPDX-License-Identifier: Apache-2.0

package human

import (
	"math"
	"testing"
)

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 1: "1", 1023: "1023", 1024: "1KiB", 1536: "1536", 16 << 20: "16MiB", 3 << 30: "3GiB", 1<<30 + 1: "1073741825", 2 << 40: "2048GiB", math.MaxUint64: "18446744073709551615",
	} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}
