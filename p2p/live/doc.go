// SPDX-License-Identifier: Apache-2.0

// Package live tests the predictions of package p2p: it allocates memory on a GPU,
// registers it with a NIC, lets the NIC write and read it, compares every byte,
// and traces the kernel to find where the bytes were.
//
// # The rungs
//
// A proof ([p2p.Proof]) has a result for each step: allocated, exported, registered,
// placed, route, written, read, ordered, released. A failed step ends the proof, and
// the later steps are [p2p.NotReached]. There are two exceptions: a buffer that is not
// in the GPU's memory is still written and read, and a buffer that was allocated is
// always released. A [p2p.Watcher] follows the kernel's log and the links' error
// counters meanwhile.
//
// # Unknown
//
// Right bytes do not prove where they are: a driver may have moved the buffer to
// system memory. Without a trace the outcome of a successful registration is
// unknown, and the proof gives the reason. A refusal needs no trace.
//
// # Without libibverbs
//
// Without libibverbs, and in a build without cgo, this package registers the buffer by
// the kernel's ioctl, and moves no bytes: written, read and ordered are skipped for
// that reason. Some drivers (mlx5) open a context only with data from their provider
// library. For these the package does not try a registration, and the rung is unknown.
//
// # What it does to the machine
//
// A proof makes a buffer of [Options].Size bytes in the GPU (256 KiB by default), a PD,
// a CQ, queue pairs that are connected to each other over one port, and a few MRs. A
// [Prover] tries one pair at a time, and closes all of these before the next pair. It
// keeps the NICs and the GPUs' device files open until [Prover.Release]. It changes no
// memory except its own. It needs the permissions of a registration: access to the device files, and
// CAP_IPC_LOCK or a sufficient RLIMIT_MEMLOCK. A trace usually needs root.
//
// To change what a proof does, change climb.go; the verification itself is in package canary.
package live
