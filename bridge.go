// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"

	"github.com/gpurdma/gpurdma/internal/bridge"
	"github.com/gpurdma/gpurdma/internal/memory"
)

func init() {
	bridge.NewFabric = func(nics []*memory.NIC, alloc bridge.Alloc) (any, error) {
		f, err := newFabric(nics)
		if err != nil {
			return nil, err
		}
		f.alloc = func(ctx context.Context, spec string, size int64) (Source, error) {
			src, err := alloc(ctx, spec, size)
			if err != nil {
				return nil, err
			}
			return src.(Source), nil
		}
		return f, nil
	}
}
