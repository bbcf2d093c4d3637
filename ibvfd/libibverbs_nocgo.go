// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package ibvfd

// library answers ErrNotBuilt: loading a C library needs cgo.
func library() (verbs, error) { return nil, ErrNotBuilt }

// Version names the libibverbs in use, or says why there is none.
func Version() string { return ErrNotBuilt.Error() }
