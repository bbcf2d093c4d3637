// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package dl

import (
	"errors"
	"testing"
)

func TestNotBuilt(t *testing.T) {
	if _, err := Open("libc.so.6"); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("Open: %v, want ErrNotBuilt", err)
	}
}
