// SPDX-License-Identifier: Apache-2.0

// Package explain says why the registration of memory was refused: which rule of the
// kernel's the request breaks, and, of a refusal by a library or a kernel, the cause and
// the stages that the evidence allows.
//
// To add a rule of the kernel's, change rules.go; to tell one more cause of a refusal, change dmabuf.go or host.go.
package explain
