// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package rocm

func load() (driver, error) { return nil, ErrNotBuilt }
