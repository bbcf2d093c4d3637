// SPDX-License-Identifier: Apache-2.0

// Package arch says what depends on the processor that a guest has: Debian's names for
// it, the page size, and how programs for it are built on this machine.
//
// To add a processor, add it to arch.go.
package arch
