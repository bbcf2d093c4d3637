// SPDX-License-Identifier: Apache-2.0

// Package abicheck compares Go structures with the kernel's: with its C
// headers, through a small program that a test compiles, and with the BTF of
// the running kernel. It is for tests.
//
// headers.go asks the C compiler, and twins.go finds the Go structures. Change it to compare another property of
// a structure.
package abicheck
