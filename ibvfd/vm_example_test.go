// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"context"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The examples that the pages of the seed documents in docs name, on the testbed's NIC.
func TestVMExamples(t *testing.T) {
	testenv.VM(t)
	for name, run := range map[string]func(*testing.T, context.Context) error{
		"MR_Rereg": func(_ *testing.T, ctx context.Context) error { return moveOver(ctx) },
		"Package": func(t *testing.T, ctx context.Context) error {
			return writeTo(ctx, exampleNIC, segment(t, alloc(t, exampleSpec, 1<<16, gpualloc.Options{})))
		},
	} {
		t.Run(name, func(t *testing.T) {
			noGrowth(t)
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(time.Minute))
			defer cancel()
			if err := run(t, ctx); err != nil {
				t.Error(err)
			}
		})
	}
}
