// SPDX-License-Identifier: Apache-2.0

// Package metrics makes Prometheus metrics of a run of p2pcheck. To add a metric, change this package, and
// the table in docs/how-to/prometheus.md, with which a test compares it.
//
// A label's value is a word of p2pcheck, or the name of a device. Texts that say why something could not be
// read are no labels: each new text would be a new series.
package metrics
