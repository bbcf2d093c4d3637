// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"github.com/gpurdma/gpurdma/internal/bridge"
	"github.com/gpurdma/gpurdma/internal/memory"
)

func init() {
	bridge.NewFabric = func(nics []*memory.NIC, alloc bridge.Alloc) (any, error) {
		f, err := newFabric(nics)
		if err != nil {
			return nil, err
		}
		f.alloc = alloc
		return f, nil
	}
}
