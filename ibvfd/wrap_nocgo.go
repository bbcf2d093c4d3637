// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package ibvfd

import "unsafe"

// Wrap answers ErrNotBuilt: there is no libibverbs that could have opened a
// context.
func Wrap(unsafe.Pointer, func()) (*Context, error) { return nil, ErrNotBuilt }
