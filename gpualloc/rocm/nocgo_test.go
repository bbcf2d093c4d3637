// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package rocm

import (
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
)

func TestNotBuilt(t *testing.T) {
	if _, err := Devices(gpualloc.Env{}); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("got %v, want ErrNotBuilt", err)
	}
	_, err := gpualloc.Open("rocm", gpualloc.Env{})
	if !errors.Is(err, ErrNotBuilt) || !errors.Is(err, gpualloc.ErrUnavailable) {
		t.Errorf("got %v, want ErrNotBuilt and ErrUnavailable", err)
	}
}
