// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package dl

// Library is never made in this build.
type Library struct{}

// Open answers ErrNotBuilt.
func Open(string) (*Library, error) { return nil, ErrNotBuilt }
