// SPDX-License-Identifier: Apache-2.0

package nicmetrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Kinds are the kinds of operations that are counted.
var Kinds = []operation.Kind{operation.CompareSwap, operation.FetchAdd, operation.Read, operation.Send, operation.Write}

// Collector is a prometheus.Collector. It returns the counters by NICs' names, anew for each collection.
type Collector func() map[string]*workqueue.Sum

// ofNIC is a metric with one value for each NIC.
type ofNIC struct {
	*prometheus.Desc
	kind  prometheus.ValueType
	value func(*workqueue.Sum) float64
}

// ofKind is a counter with a value for each NIC and kind of operation.
type ofKind struct {
	*prometheus.Desc
	value func(*workqueue.KindCounts) float64
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gpurdma_"+name, help, append([]string{"nic"}, labels...), nil)
}

var byNIC = []ofNIC{
	{desc("checked_blocks_total", "Blocks of peers' writes that were compared with the peers' sums."), prometheus.CounterValue, func(s *workqueue.Sum) float64 { return float64(s.Checked) }},
	{desc("connections", "Connections that are open."), prometheus.GaugeValue, func(s *workqueue.Sum) float64 { return float64(s.Conns) }},
	{desc("copied_bytes_total", "Bytes that the CPU has copied between staging buffers and their sources, for operations and otherwise."), prometheus.CounterValue, func(s *workqueue.Sum) float64 { return float64(s.Copied) }},
	{desc("corrupt_blocks_total", "Blocks of peers' writes whose bytes were wrong."), prometheus.CounterValue, func(s *workqueue.Sum) float64 { return float64(s.Corrupt) }},
	{desc("pinned_bytes", "Host memory that is pinned for the NIC."), prometheus.GaugeValue, func(s *workqueue.Sum) float64 { return float64(s.Pinned) }},
}

var byKind = []ofKind{
	{desc("bytes_total", "Bytes of the operations that were carried out.", "kind"), func(k *workqueue.KindCounts) float64 { return float64(k.Bytes) }},
	{desc("errors_total", "Operations of this side that have failed, or were withdrawn, wholly or in part.", "kind"), func(k *workqueue.KindCounts) float64 { return float64(k.Failed) }},
	{desc("operations_total", "Operations of this side that were carried out.", "kind"), func(k *workqueue.KindCounts) float64 { return float64(k.Done()) }},
	{desc("repeats_total", "Times that an operation was begun again on another link.", "kind"), func(k *workqueue.KindCounts) float64 { return float64(k.Repeats) }},
	{desc("staged_bytes_total", "Bytes that the CPU has copied between staging buffers and their sources for operations.", "kind"), func(k *workqueue.KindCounts) float64 { return float64(k.Staged) }},
}

var duration = desc("operation_duration_seconds", "Time from posting to completion of the operations that were carried out.", "kind")

// Describe sends the descriptions of all metrics.
func (c Collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range byNIC {
		to <- m.Desc
	}
	for _, m := range byKind {
		to <- m.Desc
	}
	to <- duration
}

// Collect sends all metrics.
func (c Collector) Collect(to chan<- prometheus.Metric) {
	for name, sum := range c() {
		nic := strings.ToValidUTF8(name, "\ufffd") // the library asks for it
		for _, m := range byNIC {
			to <- prometheus.MustNewConstMetric(m.Desc, m.kind, m.value(sum), nic)
		}
		for _, kind := range Kinds {
			counts := &sum.Counts[kind]
			for _, m := range byKind {
				to <- prometheus.MustNewConstMetric(m.Desc, prometheus.CounterValue, m.value(counts), nic, kind.String())
			}
			to <- prometheus.MustNewConstHistogram(duration, counts.Done(), counts.Time.Seconds(), buckets(&counts.Latency), nic, kind.String())
		}
	}
}

// buckets returns a histogram as Prometheus has it: of each bound in seconds, how many took at most
// that long.
func buckets(latency *[workqueue.Buckets]uint64) map[float64]uint64 {
	list, n := map[float64]uint64{}, uint64(0)
	for i, x := range latency[:len(latency)-1] {
		n += x
		list[(time.Microsecond << i).Seconds()] = n
	}
	return list
}
