// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package fi_test

import (
	"context"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The examples that docs/reference/fi_rma.md names, on the testbed's NIC.
func TestVMExamples(t *testing.T) {
	testenv.VM(t)
	for name, run := range map[string]func(context.Context) error{
		"Endpoint": writeAndRead, "Endpoint_WriteMsg": writeAndTell,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(time.Minute))
			defer cancel()
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}
