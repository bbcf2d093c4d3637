// SPDX-License-Identifier: Apache-2.0

// Package support finds out whether tracing can work on this machine: the kernel's version
// and type information, lockdown, this process's capabilities and namespaces. Change it when
// tracing needs something else.
package support
