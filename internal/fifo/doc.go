// SPDX-License-Identifier: Apache-2.0

// Package fifo is a queue of values that allocates nothing once it has had its greatest length.
// Change it only if queues are to keep or to free their memory in another way.
package fifo
