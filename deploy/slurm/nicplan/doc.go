// SPDX-License-Identifier: Apache-2.0

// Package nicplan plans which NICs the jobs with each GPU of a node use, from a run of p2pcheck and from the
// order in which slurmd counts the GPUs. To give GPUs other NICs, change it.
//
// The plan depends on the node alone, not on the jobs: each GPU has its NICs, and a job has those of its
// GPUs. Two jobs share a NIC only where the plan gives it to two GPUs, which it does only where it must.
package nicplan
