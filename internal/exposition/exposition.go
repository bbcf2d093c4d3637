// SPDX-License-Identifier: Apache-2.0

// Package exposition writes the counters of NICs' connections in Prometheus' text format, for
// commands, which do without Prometheus' library. The metrics are those of package metrics, whose
// test compares the two. Change it to add a metric, in both places.
package exposition

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// kinds are the kinds of operations, in the order of their names.
var kinds = []operation.Kind{operation.CompareSwap, operation.FetchAdd, operation.Read, operation.Send, operation.Write}

// NIC is a NIC's name and its counters.
type NIC struct {
	Name string
	Sum  *workqueue.Sum
}

// Write writes all metrics of some NICs.
func Write(b *strings.Builder, nics ...NIC) {
	byNIC := func(name, kind, help string, value func(*workqueue.Sum) int64) {
		head(b, name, kind, help)
		for _, n := range nics {
			fmt.Fprintf(b, "gpurdma_%s{nic=%s} %d\n", name, quoted(n.Name), value(n.Sum))
		}
	}
	byKind := func(name, help string, value func(*workqueue.KindCounts) uint64) {
		head(b, name, "counter", help)
		for _, k := range kinds {
			for _, n := range nics {
				fmt.Fprintf(b, "gpurdma_%s{kind=%s,nic=%s} %d\n", name, quoted(k.String()), quoted(n.Name), value(&n.Sum.Counts[k]))
			}
		}
	}
	byKind("bytes_total", "Bytes of the operations that were carried out.", func(k *workqueue.KindCounts) uint64 { return uint64(k.Bytes) })
	byNIC("checked_blocks_total", "counter", "Blocks of peers' writes that were compared with the peers' sums.", func(s *workqueue.Sum) int64 { return int64(s.Checked) })
	byNIC("connections", "gauge", "Connections that are open.", func(s *workqueue.Sum) int64 { return int64(s.Conns) })
	byNIC("copied_bytes_total", "counter", "Bytes that the CPU has copied between staging buffers and their sources, for operations and otherwise.", func(s *workqueue.Sum) int64 { return s.Copied })
	byNIC("corrupt_blocks_total", "counter", "Blocks of peers' writes whose bytes were wrong.", func(s *workqueue.Sum) int64 { return int64(s.Corrupt) })
	byKind("errors_total", "Operations of this side that have failed, or were withdrawn, wholly or in part.", func(k *workqueue.KindCounts) uint64 { return k.Failed })
	durations(b, nics)
	byKind("operations_total", "Operations of this side that were carried out.", (*workqueue.KindCounts).Done)
	byNIC("pinned_bytes", "gauge", "Host memory that is pinned for the NIC.", func(s *workqueue.Sum) int64 { return s.Pinned })
	byKind("repeats_total", "Times that an operation was begun again on another link.", func(k *workqueue.KindCounts) uint64 { return k.Repeats })
	byKind("staged_bytes_total", "Bytes that the CPU has copied between staging buffers and their sources for operations.", func(k *workqueue.KindCounts) uint64 { return uint64(k.Staged) })
}

func head(b *strings.Builder, name, kind, help string) {
	fmt.Fprintf(b, "# HELP gpurdma_%s %s\n# TYPE gpurdma_%s %s\n", name, help, name, kind)
}

// durations writes the histograms of times.
func durations(b *strings.Builder, nics []NIC) {
	const name = "operation_duration_seconds"
	head(b, name, "histogram", "Time from posting to completion of the operations that were carried out.")
	for _, kind := range kinds {
		for _, nic := range nics {
			k := &nic.Sum.Counts[kind]
			labels := fmt.Sprintf("kind=%s,nic=%s", quoted(kind.String()), quoted(nic.Name))
			n := uint64(0)
			for i, x := range k.Latency {
				n += x
				bound := "+Inf"
				if i < len(k.Latency)-1 {
					bound = number((time.Microsecond << i).Seconds())
				}
				fmt.Fprintf(b, "gpurdma_%s_bucket{%s,le=%s} %d\n", name, labels, quoted(bound), n)
			}
			fmt.Fprintf(b, "gpurdma_%s_sum{%s} %s\ngpurdma_%s_count{%s} %d\n", name, labels, number(k.Time.Seconds()), name, labels, n)
		}
	}
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// escaped has the escapes that the format knows in a label's value, and no others.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// quoted is a label's value.
func quoted(s string) string { return `"` + escaped.Replace(s) + `"` }
