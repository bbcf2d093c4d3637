// SPDX-License-Identifier: Apache-2.0

// Package failure has the error of a failed operation, as all packages of this module
// return it.
//
// An [Error] has the operation that failed, its object, the numbers that matter, the cause,
// and a change that the user can make. The cause is an errno of the kernel, or one of the
// sentinels here, which stand for operations that this module refuses by itself: a sentinel
// has the errno that the kernel has for such a refusal. errors.Is and errors.As find both. A
// method of a closed object returns [os.ErrClosed].
//
// To add a sentinel that several packages return, change sentinel.go. A package makes one that
// only it returns with [Sentinel]. The words of an errno are in internal/errno.
package failure
