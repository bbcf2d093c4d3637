// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"testing"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/golden"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
)

// What people see.
func TestServeTables(t *testing.T) {
	local := station.Side{
		Memory: buffer.Description{Spec: "drm:renderD128", Exporter: "drm", Kind: "vram", Size: 4 << 20},
		NIC:    "mlx5_0", NICReason: "nearest to 0000:03:00.0", Policy: "prefer", Path: "direct", Route: "ibv_reg_dmabuf_mr", Why: "registered by ibv_reg_dmabuf_mr",
	}
	golden.Tables(t, map[string]golden.Result{
		"serve":       &Result{Listen: "127.0.0.1:7471", Protection: "loopback", Local: local},
		"serve-plain": &Result{Listen: "10.0.0.1:7471", Protection: "none", Local: local},
	})
}
