// SPDX-License-Identifier: Apache-2.0

// Package dl loads shared libraries at run time and finds versioned symbols in
// them: a program that uses it starts on a machine without the library, and
// can say which one is missing.
//
// A library once loaded stays: those that this module loads (libibverbs and
// its providers) do not survive being unloaded. A build without cgo has no function of
// this package.
//
// Change dl_cgo.go to load in another way, and error.go to explain another failure.
package dl
