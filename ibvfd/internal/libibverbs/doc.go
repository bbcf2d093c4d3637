// SPDX-License-Identifier: Apache-2.0

// Package libibverbs calls the C library of that name, which it loads at run time. Its
// interfaces are what package ibvfd needs of the library: there is the library itself,
// the kernel without it, and the scripts of tests. A refusal is a unix.Errno.
//
// Work requests and completions pass through arrays in C memory, in the layout that
// libibverbs has ([SendWR], [RecvWR], [WC]), so that many of them cross into C at once
// and nothing is allocated.
//
// To call another function of the library, add it to load_cgo.go, and a method to the file of its object.
package libibverbs
