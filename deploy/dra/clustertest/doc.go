// SPDX-License-Identifier: Apache-2.0

// Package clustertest is the scheduler's part of a Kubernetes cluster with one node, by Kubernetes' own allocator, and
// machines to try it on. Only tests use it.
//
// To try another machine, add it to topologies.go.
package clustertest
