// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// The library itself, where there is one, on a machine that need not have RDMA:
// an answer in words, and no crash.
func TestLibrary(t *testing.T) {
	if l, err := Listen("127.0.0.1:0"); err == nil {
		t.Logf("listens at %v", l.Addr())
		closing(t, l)
	} else {
		t.Log(err)
	}
	m, err := library()
	switch {
	case errors.Is(err, ibvfd.ErrNotBuilt), errors.Is(err, ErrNoLibrary), errors.Is(err, ErrBrokenLibrary):
		if _, rerr := Resolve(t.Context(), peerAddr, ""); !errors.Is(rerr, errors.Unwrap(err)) && !errors.Is(rerr, err) {
			t.Errorf("Resolve: %v, library: %v", rerr, err)
		}
	case err != nil:
		t.Error(err)
	case m == nil:
		t.Error("neither a library nor an error")
	}
}
