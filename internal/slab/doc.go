// SPDX-License-Identifier: Apache-2.0

// Package slab is registered host memory in small slots. An operation takes a slot for the bytes
// that the program injects, or for the result of an atomic without local memory. Change it to
// allocate, bound or free this memory in another way.
package slab
