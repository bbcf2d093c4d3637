// SPDX-License-Identifier: Apache-2.0

package register

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd/region"
)

// available makes a machine that has as many bytes and no cgroup.
func available(t *testing.T, bytes int64) gpualloc.Env {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "meminfo"), fmt.Appendf(nil, "MemAvailable: %d kB\n", bytes>>10), 0o600); err != nil {
		t.Fatal(err)
	}
	return gpualloc.Env{Proc: dir, Sys: dir}
}

func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		Room
		available int64
		done      int
		refused   string
	}{
		"one":                     {Room{MRs: 1, Length: 1 << 30, Count: 1}, 1 << 30, 0, ""},
		"a hundred million":       {Room{MRs: 1, Length: 1 << 20, Count: 1e8}, 1 << 40 / 3, 0, "100000000 registrations of 1 MiB need about"},
		"more than a number has":  {Room{MRs: 1, Length: 1 << 60, Count: math.MaxInt}, 1 << 40, 0, "MemAvailable leaves"},
		"large ranges":            {Room{MRs: 1, Length: 64 << 20, Count: 300000}, 16 << 30, 0, "300000 registrations of 64 MiB need about"},
		"many segments":           {Room{MRs: 1 << 20, Length: 1 << 20, Count: 1}, 1 << 30, 0, "1 registrations"},
		"enough for the rest":     {Room{MRs: 1, Length: 1 << 12, Count: 3000}, 8 << 20, 1024, ""},
		"too little for the rest": {Room{MRs: 1, Length: 1 << 12, Count: 3000}, 2 << 20, 1024, "to go on needs about"},
		"between two looks":       {Room{MRs: 1, Length: 1 << 12, Count: 3000}, 2 << 20, 1025, ""},
		"nearly done, but low":    {Room{MRs: 1, Length: 1 << 12, Count: 2049}, 1 << 20, 2048, "to go on needs about"},
		"large ones sooner":       {Room{MRs: 1, Length: 4 << 30, Count: 100}, 1 << 20, 3, "to go on needs about"},
	} {
		t.Run(name, func(t *testing.T) {
			c.Env, c.NIC = available(t, c.available), "rxe0"
			err := c.look(c.done)
			if c.refused == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, failure.ErrLimit) || !strings.Contains(err.Error(), c.refused) ||
				!strings.Contains(err.Error(), "lower --count") || !strings.Contains(err.Error(), "--force") {
				t.Errorf("%v, want %q and what to change", err, c.refused)
			}
		})
	}
	if err := (*Room)(nil).look(0); err != nil {
		t.Errorf("forced: %v", err)
	}
}

func TestRoomOfDevice(t *testing.T) {
	r := Room{NIC: "rxe0", MRs: 2, Count: 500}
	for most, ok := range map[int]bool{0: true, 1000: true, 999: false} {
		if err := r.checkDevice(most); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "1000 MRs, where the device has 999 at most (max_mr)") {
			t.Errorf("max_mr %d: %v", most, err)
		}
	}
}

func TestOverlapping(t *testing.T) {
	segments := []region.Segment{{Length: 10}, {Length: 10}, {Length: 5}}
	for _, c := range []struct {
		offset, length uint64
		want           int
	}{{0, 25, 3}, {0, 10, 1}, {9, 2, 2}, {10, 10, 1}, {20, 100, 1}, {30, 1, 1}, {0, 0, 1}} {
		if n := overlapping(segments, c.offset, c.length); n != c.want {
			t.Errorf("%d bytes from %d on: %d segments, want %d", c.length, c.offset, n, c.want)
		}
	}
}
