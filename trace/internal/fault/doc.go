// SPDX-License-Identifier: Apache-2.0

// Package fault makes the errors of tracing. Change it to give them more fields, or to
// explain one more of the kernel's answers to BPF programs.
package fault
