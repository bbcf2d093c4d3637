// SPDX-License-Identifier: Apache-2.0

// Package tracing is the subcommands trace and explain: the registrations of other programs, in lines or
// in words. To show one more event, or to follow other processes, change this package.
package tracing
