// SPDX-License-Identifier: Apache-2.0

// Command dra-p2p is a driver of Kubernetes' dynamic resource allocation for pairs of a GPU and a NIC that
// reach each other directly. It runs on each node, beside the kubelet. docs/how-to/dra-pairs.md and docs/how-to/dra-nics.md say how to use it.
//
// Change main.go to add a flag; the packages beside cmd do the work.
package main
