// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
)

// A port that the NIC does not have is an error at once, not when a peer connects.
func TestHasPort(t *testing.T) {
	for port, ok := range map[int]bool{0: true, 1: true, 2: true, 3: false} {
		err := hasPort("mlx5_0", port, 2)
		if ok != (err == nil) || err != nil && (!errors.Is(err, failure.ErrRange) || !strings.Contains(err.Error(), "mlx5_0: Port 3") || !strings.Contains(err.Error(), "the NIC has 1 to 2")) {
			t.Errorf("%d: %v", port, err)
		}
	}
}
