// SPDX-License-Identifier: Apache-2.0

// Package schedule decides in which order the pairs of NICs of a mesh are measured: rounds in which no NIC
// is used twice (rounds.go), and the queue that starts pairs as their NICs become free (queue.go). To measure
// other pairs, or in another order, change this package.
package schedule
