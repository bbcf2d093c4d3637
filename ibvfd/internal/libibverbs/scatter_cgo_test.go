// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

import (
	"os"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd/internal/verbsstub"
)

// The provider sees scatter-to-CQE off unless the user has said otherwise, and
// programs that are started do not see it.
func TestScatterToCQE(t *testing.T) {
	const name = "MLX5_SCATTER_TO_CQE"
	t.Setenv(name, "1")
	noScatterToCQE()
	if got := verbsstub.Getenv(name); got != "0" {
		t.Errorf("C sees %q where the user has set 1, want 0", got)
	}
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
	noScatterToCQE()
	if got := verbsstub.Getenv(name); got != "0" {
		t.Errorf("C sees %q, want 0", got)
	}
	if v, ok := os.LookupEnv(name); ok {
		t.Errorf("Go sees %q", v)
	}
}
