// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package nvml

import (
	"errors"
	"testing"
)

func TestNotBuilt(t *testing.T) {
	if _, err := GPUs(); !errors.Is(err, ErrNotBuilt) {
		t.Error(err)
	}
	if on, err := Confidential(); on || !errors.Is(err, ErrNotBuilt) {
		t.Error(on, err)
	}
	if _, err := Peers(); !errors.Is(err, ErrNotBuilt) {
		t.Error(err)
	}
}
