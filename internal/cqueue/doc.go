// SPDX-License-Identifier: Apache-2.0

// Package cqueue has completion queues that connections share. A connection reserves room for all
// work requests that it may have outstanding, so that no queue overruns; the IDs of its work
// requests name the connection of a completion. Change it to size, share, poll or retire
// completion queues in another way. Package workqueue takes the completions of a connection;
// package progress decides when queues are polled.
package cqueue
