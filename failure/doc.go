// SPDX-License-Identifier: Apache-2.0

// Package failure has the error of a failed operation, as all packages of this module
// return it.
//
// An [Error] names the operation that failed, its object, the numbers that it had, the reason, and
// a remedy. Its cause is an errno of the kernel, or one of the sentinels
// here: an operation that this module refuses by itself, with the errno that the kernel has
// for it. errors.Is and errors.As find both. A closed object answers [os.ErrClosed].
//
// To add a sentinel that several packages return, change sentinel.go. A package makes one that
// only it returns with [Sentinel]. The words of an errno are in internal/errno.
package failure
