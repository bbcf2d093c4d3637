// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package runtimelib

// Library is never made without cgo.
type Library struct{}

// Path is the file that was loaded.
func (l *Library) Path() string { return "" }
