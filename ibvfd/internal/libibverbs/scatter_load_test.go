// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

import (
	"os"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
)

// A process that loads the library has scatter-to-CQE off in it, be it installed or not:
// before its providers look.
func TestLoadingTurnsScatterToCQEOff(t *testing.T) {
	const name = "MLX5_SCATTER_TO_CQE"
	t.Setenv(name, "") // the old value comes back
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
	if got := verbsstub.Getenv(name); got != "" {
		t.Fatalf("C sees %q before", got)
	}
	_, err := loadLibrary()
	if got := verbsstub.Getenv(name); got != "0" {
		t.Errorf("C sees %q, want 0 (%v)", got, err)
	}
}
