// SPDX-License-Identifier: Apache-2.0

// Package probe measures between two NICs, over package gpurdma: the NIC that takes part (nic.go), the side
// that is called (visit.go), the side that calls (measure.go), and the causes of what goes wrong (cause.go).
// To measure something else, change this package.
package probe
