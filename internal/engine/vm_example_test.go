// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The examples that the pages of the seed documents in docs name, on the testbed's NIC.
func TestVMExamples(t *testing.T) {
	testenv.VM(t)
	for name, run := range map[string]func(context.Context) error{
		"Endpoint": writeAndRead, "Buffer_Slice": sendParts, "Buffer_Path": explainPath,
		"View": transpose, "RemoteBuffer_View": pageOut,
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
