// SPDX-License-Identifier: Apache-2.0

// Package p2p gives the verdict on a pair of a GPU and an RDMA NIC: whether the NIC can reach the
// GPU's memory directly, why, and the one thing to change if it cannot. Evidence for the verdict is
// in the file of its link (library.go, fabric.go, contradiction.go), and remedies are in remedy.go:
// add to them there.
//
// # The decision
//
// Package p2pdma mirrors calc_map_type_and_dist() of drivers/pci/p2pdma.c, as Linux 6.1, 6.12, 7.2
// and 7.3 have it. Two functions below one bridge reach each other by bus addresses, unless a port on
// the way redirects traffic to the root (ACS). All other pairs need a host bridge that the kernel
// trusts: any on an AMD processor from Zen on, otherwise one of a list that grows with kernel
// versions. Without CONFIG_PCI_P2PDMA the kernel supports no pair.
//
// # The prediction
//
// Package drivers predicts the outcome of a registration. Exporters treat the kernel's decision
// differently: amdgpu and xe move the buffer to system memory without an error, vfio-pci refuses,
// NVIDIA's driver does not ask the kernel. The importer matters, too: whether it pins the buffer, and
// whether it can revoke a registration. The prediction is for a buffer with one importer.
//
// # The verdict
//
// [Judge] asks for the prediction, answers each link of the pair's chain (package chain), and adds
// [RemedyOf] the pair. Package machine reads the files, of this machine or of a copy of another.
//
// # Unknown
//
// If an answer depends on a file that cannot be read, on a kernel that is newer than the tables of
// this package, or on a driver from outside the kernel, the answer is unknown. Unknown is never yes.
// Every answer has the chain of its reasons.
//
// # The proof
//
// A prediction does not promise that the hardware routes the traffic that the kernel allows, that the
// data arrives, or that no other program moves the buffer. Package live tries a pair, and [Proof] has
// the result of each step. [Pair.Agrees] compares the proof with the prediction; if they differ, the
// proof is right. A [Watcher] reads the kernel's log and the counters of the links during the proof.
// The checks whose IDs begin with ACT report the proofs of pairs, and are skipped if no pair was
// tried.
package p2p
