// SPDX-License-Identifier: Apache-2.0

// Package nicmetrics makes Prometheus metrics of the counters of NICs' connections: for package metrics, which has
// them of Fabrics, and for dmabuf-reg, which has endpoints. Change it to add a metric, with docs/reference/metrics.md.
package nicmetrics
