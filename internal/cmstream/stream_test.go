// SPDX-License-Identifier: Apache-2.0

package cmstream

import (
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// The stream uses defaults for values that only the queue pairs for data accept, and rdma_cm
// would refuse.
func TestStreamParam(t *testing.T) {
	for _, c := range []struct{ timeout, wantTimeout, retries, wantRetries uint8 }{
		{0, 0, 0, 0}, {17, 17, 6, 6}, {31, 31, 7, 7}, {ibvfd.Zero, 0, ibvfd.Zero, 0},
	} {
		s := Stream{cfg: &Config{Connect: ibvfd.ConnectAttr{Timeout: c.timeout, RetryCount: c.retries}}}
		if p := s.param(); p.Timeout != c.wantTimeout || p.RetryCount != c.wantRetries {
			t.Errorf("Timeout %d, RetryCount %d: asked for %d and %d, want %d and %d", c.timeout, c.retries, p.Timeout, p.RetryCount, c.wantTimeout, c.wantRetries)
		}
	}
}
