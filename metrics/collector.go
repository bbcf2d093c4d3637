// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpurdma/gpurdma"
)

// Collector is a prometheus.Collector of Fabrics.
type Collector struct {
	fabrics []*gpurdma.Fabric
}

// NewCollector returns a collector of Fabrics. NICs of the same name, of several Fabrics, count
// together: to have them apart, register a collector for each Fabric by
// prometheus.WrapRegistererWith, with a label. A Fabric that is closed keeps its counters.
func NewCollector(fabrics ...*gpurdma.Fabric) *Collector {
	return &Collector{slices.Clone(fabrics)}
}

// The metrics.
var (
	operations  = byKind("operations_total", "Operations of this side that were carried out.")
	failed      = byKind("errors_total", "Operations of this side that have failed, or were withdrawn, wholly or in part.")
	repeats     = byKind("repeats_total", "Times that an operation was begun again on another link.")
	moved       = byKind("bytes_total", "Bytes of the operations that were carried out.")
	staged      = byKind("staged_bytes_total", "Bytes that the CPU has copied between staging buffers and their sources for operations.")
	duration    = byKind("operation_duration_seconds", "Time from posting to completion of the operations that were carried out.")
	copied      = byNIC("copied_bytes_total", "Bytes that the CPU has copied between staging buffers and their sources, for operations and otherwise.")
	checked     = byNIC("checked_blocks_total", "Blocks of peers' writes that were compared with the peers' sums.")
	corrupt     = byNIC("corrupt_blocks_total", "Blocks of peers' writes whose bytes were wrong.")
	connections = byNIC("connections", "Connections that are open.")
	pinned      = byNIC("pinned_bytes", "Host memory that is pinned for the NIC.")
)

func byKind(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("gpurdma_"+name, help, []string{"nic", "kind"}, nil)
}

func byNIC(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("gpurdma_"+name, help, []string{"nic"}, nil)
}

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{operations, failed, repeats, moved, staged, duration, copied, checked, corrupt, connections, pinned} {
		to <- d
	}
}

// Collect sends all metrics.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	nics := map[string][]gpurdma.Stats{} // of each Fabric that has a NIC of the name
	for _, f := range c.fabrics {
		for name, s := range f.Stats().ByNIC {
			nics[name] = append(nics[name], s)
		}
	}
	for _, nic := range slices.Sorted(maps.Keys(nics)) {
		send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, t, v, append([]string{nic}, labels...)...)
		}
		kinds := map[gpurdma.OpKind]gpurdma.Stats{}
		var all gpurdma.Stats
		for _, s := range nics[nic] {
			all.Staged, all.Conns, all.Pinned = all.Staged+s.Staged, all.Conns+s.Conns, all.Pinned+s.Pinned
			all.Checked, all.Corrupt = all.Checked+s.Checked, all.Corrupt+s.Corrupt
			for kind, x := range s.ByKind {
				kinds[kind] = sum(kinds[kind], x)
			}
		}
		send(copied, prometheus.CounterValue, float64(all.Staged))
		send(checked, prometheus.CounterValue, float64(all.Checked))
		send(corrupt, prometheus.CounterValue, float64(all.Corrupt))
		send(connections, prometheus.GaugeValue, float64(all.Conns))
		send(pinned, prometheus.GaugeValue, float64(all.Pinned))
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			s, name := kinds[kind], kind.String()
			send(operations, prometheus.CounterValue, float64(s.Done), name)
			send(failed, prometheus.CounterValue, float64(s.Failed), name)
			send(repeats, prometheus.CounterValue, float64(s.Repeats), name)
			send(moved, prometheus.CounterValue, float64(s.Bytes), name)
			send(staged, prometheus.CounterValue, float64(s.Staged), name)
			to <- prometheus.MustNewConstHistogram(duration, s.Done, s.Time.Seconds(), buckets(s.Latency), nic, name)
		}
	}
}

// sum adds the counters of one kind.
func sum(a, b gpurdma.Stats) gpurdma.Stats {
	latency := slices.Clone(b.Latency)
	for i, n := range a.Latency {
		latency[i] += n
	}
	return gpurdma.Stats{Done: a.Done + b.Done, Failed: a.Failed + b.Failed, Repeats: a.Repeats + b.Repeats, Bytes: a.Bytes + b.Bytes, Staged: a.Staged + b.Staged, Time: a.Time + b.Time, Latency: latency}
}

// buckets returns a histogram as Prometheus has it: of each bound in seconds, how many took at most
// that long.
func buckets(latency []uint64) map[float64]uint64 {
	list, n := map[float64]uint64{}, uint64(0)
	for i, x := range latency[:len(latency)-1] {
		n += x
		list[(time.Microsecond << i).Seconds()] = n
	}
	return list
}
