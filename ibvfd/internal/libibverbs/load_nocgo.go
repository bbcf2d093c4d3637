// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package libibverbs

import "unsafe"

// Load answers ErrNotBuilt: loading a C library needs cgo.
func Load() (Library, error) { return nil, ErrNotBuilt }

// Borrow answers ErrNotBuilt: there is no library that could have opened a device.
func Borrow(unsafe.Pointer) (Context, string, error) { return nil, "", ErrNotBuilt }
