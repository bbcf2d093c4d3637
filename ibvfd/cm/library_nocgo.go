// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package cm

import "github.com/gpurdma/gpurdma/ibvfd"

// library answers ErrNotBuilt: loading a C library needs cgo.
func library() (manager, error) { return nil, ibvfd.ErrNotBuilt }
