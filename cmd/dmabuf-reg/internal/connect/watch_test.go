// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Each second has a line for each rail, with the rates of that second. A terminal shows the last ones only.
func TestWatch(t *testing.T) {
	for _, redraw := range []bool{false, true} {
		var out strings.Builder
		a, b := workqueue.KindCounts{}, workqueue.KindCounts{}
		up := true
		w := &railLines{out: &out, redraw: redraw, rails: func() []rail {
			return []rail{{name: "port 1 of mlx5_0", up: true, counts: a}, {name: "port 2 of mlx5_1", up: up, counts: b}}
		}}
		now := time.Now()
		w.begin(now)
		a.Latency[3], a.Bytes = 2000, 3_000_000_000
		w.draw(now.Add(2 * time.Second))
		a.Latency[4], a.Bytes, b.Failed, up = 500, 3_000_500_000, 1, false
		w.draw(now.Add(3 * time.Second))
		lines := []string{
			"port 1 of mlx5_0  up         1000 operations/s     1.50 GB/s  0 errors",
			"port 2 of mlx5_1  up            0 operations/s        0 MB/s  0 errors",
			"port 1 of mlx5_0  up          500 operations/s      0.5 MB/s  0 errors",
			"port 2 of mlx5_1  down          0 operations/s        0 MB/s  1 error",
		}
		want := strings.Join(lines, "\n") + "\n"
		if redraw {
			want = "\x1b[K" + lines[0] + "\n\x1b[K" + lines[1] + "\n\x1b[2A\x1b[K" + lines[2] + "\n\x1b[K" + lines[3] + "\n"
		}
		if out.String() != want {
			t.Errorf("%q\nwant %q", out.String(), want)
		}
	}
}
