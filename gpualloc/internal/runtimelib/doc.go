// SPDX-License-Identifier: Apache-2.0

// Package runtimelib loads the libraries of GPU vendors and says clearly what
// is wrong when they cannot be used: not installed, there but broken, or older
// than what is asked of them.
//
// Change it to find or to refuse a library by another rule.
package runtimelib
