// SPDX-License-Identifier: Apache-2.0

// Package agent serves metrics to Prometheus, for as long as a command runs. Change it to bear more clients, or
// to serve another answer.
//
// All requests that wait at the same time share one look at the machine, which ends when the last of them is
// gone. Clients that send too much, too slowly, or over too many connections cost a bounded amount of memory.
package agent
