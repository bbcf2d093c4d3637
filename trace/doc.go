// SPDX-License-Identifier: Apache-2.0

// Package trace watches the kernel register dma-bufs, and says where the bytes
// are and which kernel function refused.
//
// eBPF programs follow a registration through the kernel: the descriptor, the
// attachment, pin, map, the scatter list, the physical addresses behind it,
// the keys of the MR. They assemble it in the kernel and send one [Record]
// when the call ends. Later changes (a move, an unmapping, the deregistration)
// come as small events that join the record. Package placement makes the verdict on
// where the bytes are. [Record.Explain] explains a refusal: which kernel function
// returned the error first.
//
// A [Tracer] needs no help from the processes it watches: they may belong to any
// user, and may have started before. [Tracer.Events] yields the changes,
// [Tracer.Records] the records that live, [Tracer.Prove] answers for one registration.
//
// # What is not seen
//
// Functions that a kernel does not have are reported ([Tracer.Hooks]), and so
// is everything lost ([Tracer.Loss]). A verdict that could rest on something
// lost is Unknown. Attachments from before the tracer are reported as such. Where
// they are mapped is known only if the kernel keeps their scatter table.
//
// # Kernels and privilege
//
// Linux 5.17 or later with BTF, on amd64 and arm64; tried on Debian's 6.1, 6.12,
// 7.2 and 7.3. CAP_BPF, CAP_PERFMON, and CAP_SYS_ADMIN for the types of modules: root,
// in short. docs/explanation/trace.md says how to read the answers.
package trace

// The packages below have the parts; join.go joins their events. To report one more fact of a registration, change
// internal/objects/bpf/record.h, internal/abi and join_events.go.
