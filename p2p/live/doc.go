// SPDX-License-Identifier: Apache-2.0

// Package live proves what package p2p predicts: it allocates memory on a GPU,
// registers it with a NIC, lets the NIC write and read it, compares every byte,
// and asks the kernel by trace where the bytes were.
//
// # The rungs
//
// A proof ([p2p.Proof]) has a result for each step: allocated, exported,
// registered, placed, route, written, read, released. A step that failed ends
// it, and the others say that they were not reached; only what there is to
// release is released whatever happens. [p2p.Machine.Watch] follows the
// kernel's log and the links' error counters meanwhile.
//
// # Unknown
//
// Bytes that are right say nothing of where they are: a driver may have moved
// the buffer to system memory. Without a trace the outcome of a registration
// that succeeded is unknown, and the reason is there. A refusal needs none.
//
// # Without libibverbs
//
// Where there is no libibverbs, and in a build without cgo, the kernel registers the
// buffer by its own ioctl, and no bytes are moved: written, read and ordered are
// skipped for that reason. A driver that opens no context without data of its
// provider's (mlx5) is not asked, and the rung is unknown.
//
// # What it does to the machine
//
// A buffer of 256 KiB in the GPU, a PD, a CQ, queue pairs that are connected to
// each other over one port, a few regions; all of it one pair at a time, and
// gone before the next. The contents of no memory but its own change. It takes
// what a registration takes: the device files, CAP_IPC_LOCK or the limit, and
// to trace, root in short.
package live
