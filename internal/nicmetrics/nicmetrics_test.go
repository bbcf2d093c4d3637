// SPDX-License-Identifier: Apache-2.0

package nicmetrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// The numbers are the counters', under the names that docs/reference/metrics.md has.
func TestCollector(t *testing.T) {
	var x, y workqueue.Sum
	x.Conns, x.Pinned, x.Copied, x.Checked, x.Corrupt = 2, 4096, 100, 70, 3
	x.Counts[operation.Write] = workqueue.KindCounts{Failed: 3, Repeats: 2, Bytes: 1 << 40, Staged: 7, Time: 1500 * time.Microsecond}
	x.Counts[operation.Write].Latency[0] = 4
	x.Counts[operation.Write].Latency[10] = 5
	x.Counts[operation.Write].Latency[workqueue.Buckets-1] = 1
	y.Conns = 3
	c := Collector(func() map[string]*workqueue.Sum { return map[string]*workqueue.Sum{`mlx5_0"`: &x, "mlx5_1": &y} })
	const want = `# HELP gpurdma_checked_blocks_total Blocks of peers' writes that were compared with the peers' sums.
# TYPE gpurdma_checked_blocks_total counter
gpurdma_checked_blocks_total{nic="mlx5_0\""} 70
gpurdma_checked_blocks_total{nic="mlx5_1"} 0
# HELP gpurdma_connections Connections that are open.
# TYPE gpurdma_connections gauge
gpurdma_connections{nic="mlx5_0\""} 2
gpurdma_connections{nic="mlx5_1"} 3
# HELP gpurdma_copied_bytes_total Bytes that the CPU has copied between staging buffers and their sources, for operations and otherwise.
# TYPE gpurdma_copied_bytes_total counter
gpurdma_copied_bytes_total{nic="mlx5_0\""} 100
gpurdma_copied_bytes_total{nic="mlx5_1"} 0
# HELP gpurdma_corrupt_blocks_total Blocks of peers' writes whose bytes were wrong.
# TYPE gpurdma_corrupt_blocks_total counter
gpurdma_corrupt_blocks_total{nic="mlx5_0\""} 3
gpurdma_corrupt_blocks_total{nic="mlx5_1"} 0
# HELP gpurdma_pinned_bytes Host memory that is pinned for the NIC.
# TYPE gpurdma_pinned_bytes gauge
gpurdma_pinned_bytes{nic="mlx5_0\""} 4096
gpurdma_pinned_bytes{nic="mlx5_1"} 0
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "gpurdma_checked_blocks_total", "gpurdma_connections", "gpurdma_copied_bytes_total", "gpurdma_corrupt_blocks_total", "gpurdma_pinned_bytes"); err != nil {
		t.Error(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		`gpurdma_operations_total{kind="write",nic="mlx5_0\""} 10`,
		`gpurdma_operations_total{kind="read",nic="mlx5_0\""} 0`,
		`gpurdma_errors_total{kind="write",nic="mlx5_0\""} 3`,
		`gpurdma_repeats_total{kind="write",nic="mlx5_0\""} 2`,
		`gpurdma_bytes_total{kind="write",nic="mlx5_0\""} 1.099511627776e+12`,
		`gpurdma_staged_bytes_total{kind="write",nic="mlx5_0\""} 7`,
		`gpurdma_operation_duration_seconds_bucket{kind="write",nic="mlx5_0\"",le="1e-06"} 4`,
		`gpurdma_operation_duration_seconds_bucket{kind="write",nic="mlx5_0\"",le="0.000512"} 4`,
		`gpurdma_operation_duration_seconds_bucket{kind="write",nic="mlx5_0\"",le="0.001024"} 9`,
		`gpurdma_operation_duration_seconds_bucket{kind="write",nic="mlx5_0\"",le="16.777216"} 9`,
		`gpurdma_operation_duration_seconds_bucket{kind="write",nic="mlx5_0\"",le="+Inf"} 10`,
		`gpurdma_operation_duration_seconds_sum{kind="write",nic="mlx5_0\""} 0.0015`,
		`gpurdma_operation_duration_seconds_count{kind="write",nic="mlx5_0\""} 10`,
	} {
		if !strings.Contains(text.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, &text)
		}
	}
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	if n, want := testutil.CollectAndCount(c), 2*(len(byNIC)+(len(byKind)+1)*len(Kinds)); n != want {
		t.Errorf("%d series, want %d", n, want)
	}
}
