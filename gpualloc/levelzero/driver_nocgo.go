// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package levelzero

func load() (driver, error) { return nil, ErrNotBuilt }
