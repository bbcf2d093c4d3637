// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

var (
	line   = regexp.MustCompile(`^gpurdma_[a-z_]+\{([a-z]+="([^"\\]|\\.)*",?)+\} [0-9.e+-]+$`)
	header = regexp.MustCompile(`^# (HELP|TYPE) gpurdma_[a-z_]+ .+$`)
)

// Each line has the format's form, and the numbers are the counters'.
func TestWrite(t *testing.T) {
	var sum workqueue.Sum
	sum.Conns, sum.Pinned, sum.Copied, sum.Checked, sum.Corrupt = 2, 4096, 100, 70, 3
	sum.Counts[operation.Write] = workqueue.KindCounts{Failed: 3, Bytes: 1 << 40, Staged: 7, Time: 1500 * time.Microsecond}
	sum.Counts[operation.Write].Latency[0] = 4
	sum.Counts[operation.Write].Latency[10] = 5
	sum.Counts[operation.Write].Latency[workqueue.Buckets-1] = 1
	var b strings.Builder
	Write(&b, NIC{`mlx5_0"`, &sum})
	for l := range strings.Lines(b.String()) {
		if l = strings.TrimSuffix(l, "\n"); !line.MatchString(l) && !header.MatchString(l) {
			t.Errorf("%q", l)
		}
	}
	for _, want := range []string{
		`gpurdma_operations_total{kind="write",nic="mlx5_0\""} 10`,
		`gpurdma_operations_total{kind="read",nic="mlx5_0\""} 0`,
		`gpurdma_errors_total{kind="write",nic="mlx5_0\""} 3`,
		`gpurdma_bytes_total{kind="write",nic="mlx5_0\""} 1099511627776`,
		`gpurdma_staged_bytes_total{kind="write",nic="mlx5_0\""} 7`,
		`gpurdma_copied_bytes_total{nic="mlx5_0\""} 100`,
		`gpurdma_connections{nic="mlx5_0\""} 2`,
		`gpurdma_checked_blocks_total{nic="mlx5_0\""} 70`,
		`gpurdma_corrupt_blocks_total{nic="mlx5_0\""} 3`,
		`gpurdma_pinned_bytes{nic="mlx5_0\""} 4096`,
		`gpurdma_operation_duration_seconds_bucket{kind="write",nic="mlx5_0\"",le="1e-06"} 4`,
		`gpurdma_operation_duration_seconds_bucket{kind="write",nic="mlx5_0\"",le="0.000512"} 4`,
		`gpurdma_operation_duration_seconds_bucket{kind="write",nic="mlx5_0\"",le="0.001024"} 9`,
		`gpurdma_operation_duration_seconds_bucket{kind="write",nic="mlx5_0\"",le="16.777216"} 9`,
		`gpurdma_operation_duration_seconds_bucket{kind="write",nic="mlx5_0\"",le="+Inf"} 10`,
		`gpurdma_operation_duration_seconds_sum{kind="write",nic="mlx5_0\""} 0.0015`,
		`gpurdma_operation_duration_seconds_count{kind="write",nic="mlx5_0\""} 10`,
	} {
		if !strings.Contains(b.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, &b)
		}
	}
}

// The metrics of several NICs come one after the other: all lines of a metric follow its head.
func TestWriteSeveral(t *testing.T) {
	var x, y workqueue.Sum
	x.Conns, y.Conns = 2, 3
	x.Counts[operation.Read].Failed, y.Counts[operation.Read].Failed = 5, 6
	var b strings.Builder
	Write(&b, NIC{"mlx5_0", &x}, NIC{"mlx5_1", &y})
	for _, want := range []string{
		"gpurdma_connections{nic=\"mlx5_0\"} 2\ngpurdma_connections{nic=\"mlx5_1\"} 3\n",
		"gpurdma_errors_total{kind=\"read\",nic=\"mlx5_0\"} 5\ngpurdma_errors_total{kind=\"read\",nic=\"mlx5_1\"} 6\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	heads := map[string]bool{}
	last := ""
	for l := range strings.Lines(b.String()) {
		switch name := metric.FindString(l); {
		case strings.HasPrefix(l, "# TYPE"):
			last = strings.Fields(l)[2]
			if heads[last] {
				t.Errorf("%s has two heads", last)
			}
			heads[last] = true
		case !strings.HasPrefix(l, "#") && !strings.HasPrefix(name, last):
			t.Errorf("%s after the head of %s", name, last)
		}
	}
}

var metric = regexp.MustCompile(`^gpurdma_[a-z_]+`)
