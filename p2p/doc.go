// SPDX-License-Identifier: Apache-2.0

// Package p2p says what the kernel is going to do when one PCI function is to
// reach the memory of another, and why.
//
// # The decision
//
// [Machine.Decide] mirrors calc_map_type_and_dist() of drivers/pci/p2pdma.c,
// as Linux 6.1, 6.12, 7.2 and 7.3 have it. Two functions below one bridge reach each
// other by bus addresses, unless a port on the way redirects to the root
// (ACS). All others need a host bridge that the kernel trusts: any on an AMD
// processor from Zen on, else one of a list that grows with kernel versions.
// Without CONFIG_PCI_P2PDMA nothing is supported.
//
// # The prediction
//
// [Machine.Predict] goes on from there. What an exporter makes of the decision
// is its own affair: amdgpu and xe silently bring the buffer to system memory,
// vfio-pci refuses, NVIDIA's driver does not ask. It depends on the importer,
// too: whether it pins, and whether it can be told to stop. The prediction is
// for an importer that is alone on its buffer. [Machine.Exporter] and
// [Machine.Importer] find out what a GPU's and an RDMA device's drivers do.
//
// # The machine
//
// [Machine.GPUs] and [Machine.NICs] find what there is, [Machine.Pair] has all
// that is to be said of two of them: the prediction, what NCCL and nvidia-smi
// call the way, and of [Machine.Remedy] the one thing to change. [Source] is
// another machine's files in place of this one's.
//
// # Unknown
//
// What could not be read, a list newer than this package, a driver whose rules
// are not those of the kernel's own: each makes the answer unknown where the
// answer depends on it, and only there. Unknown is never yes. Every answer has
// the chain of reasons that led to it.
//
// A prediction is none of these: that the hardware routes what the kernel
// lets pass, that data arrives, that nobody else moves the buffer.
//
// # The proof
//
// Package live tries a pair, and [Proof] says what became of it, rung by rung.
// [Pair.Agrees] compares that with the prediction: where the two differ, the
// proof is right. [Machine.Watch] hears what the kernel's log and the links say
// meanwhile. The checks whose ID begins with ACT tell of the proofs of a
// [Subject]'s pairs, and are skipped without.
package p2p
