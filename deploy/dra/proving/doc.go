// SPDX-License-Identifier: Apache-2.0

// Package proving tries the pairs of a node: it says whose turn it is, waits until the API server keeps pods
// away from it, and proves it by package p2p/live. To try pairs more often, or others, change schedule.go.
package proving
