// SPDX-License-Identifier: Apache-2.0

// Package metrics gives the counters of Fabrics to Prometheus. The metrics themselves are in
// internal/nicmetrics, because dmabuf-reg has them without a Fabric: change them there, and change here how
// Fabrics are read.
//
//	prometheus.MustRegister(metrics.NewCollector(fabric))
//
// The metrics, with the NIC's name in nic, and the name of a gpurdma.OpKind in kind ("write", "read",
// "send", "fetch-and-add", "compare-and-swap"):
//
//	gpurdma_operations_total{nic,kind}            operations of this side that were carried out
//	gpurdma_errors_total{nic,kind}                operations that have failed, or were withdrawn
//	gpurdma_repeats_total{nic,kind}               times that an operation was begun again on another link
//	gpurdma_bytes_total{nic,kind}                 bytes of the operations that were carried out
//	gpurdma_staged_bytes_total{nic,kind}          bytes that the CPU has copied for operations
//	gpurdma_operation_duration_seconds{nic,kind}  a histogram: from posting to completion
//	gpurdma_copied_bytes_total{nic}               all bytes that the CPU has copied, as Buffer.Sync does, too
//	gpurdma_checked_blocks_total{nic}             blocks of peers' writes that were compared with the peers' sums
//	gpurdma_corrupt_blocks_total{nic}             of these, blocks whose bytes were wrong
//	gpurdma_connections{nic}                      connections that are open
//	gpurdma_pinned_bytes{nic}                     host memory that is pinned
//
// Counters include connections that have ended. No label has an address or a text of a peer. A
// collection reads the counters once. No operation waits for it.
//
// Package metrics/spans makes OpenTelemetry spans of blocking calls. It is a Go module of its own.
package metrics

// To add a metric, change internal/nicmetrics, and docs/reference/metrics.md.
