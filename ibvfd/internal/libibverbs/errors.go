// SPDX-License-Identifier: Apache-2.0

package libibverbs

import "errors"

// Why there is no library.
var (
	ErrNotBuilt      = errors.New("built without cgo: libibverbs cannot be loaded")
	ErrNoLibrary     = errors.New("libibverbs is not installed")
	ErrBrokenLibrary = errors.New("libibverbs cannot be loaded")
)
