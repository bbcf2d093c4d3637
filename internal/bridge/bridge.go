// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"

	"github.com/gpurdma/gpurdma/internal/memory"
)

// Alloc allocates memory for Fabric.Alloc, as a gpurdma.Source.
type Alloc func(ctx context.Context, spec string, size int64) (any, error)

// NewFabric makes a *gpurdma.Fabric of NICs, which it takes over. Package gpurdma sets it.
var NewFabric func(nics []*memory.NIC, alloc Alloc) (any, error)

// NewDomain makes a *fi.Domain of a NIC, which it takes over. Package fi sets it.
var NewDomain func(*memory.NIC) any
