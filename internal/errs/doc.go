// SPDX-License-Identifier: Apache-2.0

// Package errs joins errors of which any may be nil.
//
// closed.go and ended.go have the errors of what is closed, and of contexts that have ended. Change it to join
// errors by another rule.
package errs
