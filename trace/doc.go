// SPDX-License-Identifier: Apache-2.0

// Package trace watches the kernel register dma-bufs, and says where the bytes
// are and who refused.
//
// eBPF programs follow a registration through the kernel: the descriptor, the
// attachment, pin, map, the scatter list, the physical addresses behind it,
// the keys of the MR. They assemble it in the kernel and send one [Record]
// when the call ends; what happens later (a move, an unmapping, the
// deregistration) comes as a small event that joins it. The verdict on where
// the bytes are is package placement's, and a refusal is explained by
// [Record.Explain]: which kernel function returned the error first.
//
// A [Tracer] needs nothing from the programs it watches: they may be anybody's,
// and may have started before. [Tracer.Events] yields what happens,
// [Tracer.Records] what lives, [Tracer.Prove] answers for one registration.
//
// # What is not seen
//
// Functions that a kernel does not have are reported ([Tracer.Hooks]), and so
// is everything lost ([Tracer.Loss]). A verdict that could rest on something
// lost is Unknown. What existed before is reported as such, and where it was
// mapped is known only if the kernel keeps it.
//
// # Kernels and privilege
//
// Linux 5.17 or later with BTF, on amd64 and arm64; tried on Debian's 6.1, 6.12,
// 7.2 and 7.3. CAP_BPF, CAP_PERFMON, and CAP_SYS_ADMIN for the types of modules: root,
// in short. docs/trace.md says how to read the answers.
package trace
