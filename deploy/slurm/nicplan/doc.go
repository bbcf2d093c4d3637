// SPDX-License-Identifier: Apache-2.0

// Package nicplan plans which NICs the jobs with each GPU of a node use, from a run of p2pcheck and from the
// order in which slurmd counts the GPUs. To give GPUs other NICs, change it.
//
// Each GPU has its NICs, and a job has those of its GPUs. Two jobs share a NIC only where the plan gives it to two
// GPUs, which it does only where it must. A new plan leaves the NICs of jobs that run to them.
package nicplan
