// SPDX-License-Identifier: Apache-2.0

// Package canary proves that an RDMA registration of a buffer names the right
// bytes.
//
// A registration may succeed although its offset was dropped, a segment was
// left out, or its key covers a neighbour's memory: a program notices only when
// it reads the data. Verify registers a buffer in several ways, moves random
// bytes into it by RDMA WRITE and out of it by RDMA READ over a loopback queue
// pair, and compares them with the bytes that the buffer's own view (mmap, or
// the vendor's copy call) shows.
//
// A pass proves that the bytes are right, because of these rules:
//
//   - Every byte is a function of the seed, the pass and its offset in the
//     buffer, so bytes from a wrong place are recognised and named.
//   - Before a WRITE the target holds the complement of what is expected, bit
//     by bit, and so does the memory that a READ fills: stale data cannot
//     pass, not even in a transfer of one byte.
//   - A WRITE is checked through the view, not by reading it back over the
//     same route; a READ is checked with bytes that the CPU put there.
//   - The bytes around each transfer and each MR are guarded, and accesses that
//     the MR does not allow must be refused and change nothing.
//
// [Order] tests whether a flag arrives before its data, and [Compare] measures the
// rates of a buffer and of host memory.
package canary

// plan.go chooses the patterns, rdma.go moves them, and report.go says what was found. To check bytes by another rule,
// change verify.go.
