// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/golden"
)

// What people see.
func TestServeTables(t *testing.T) {
	local := side{
		Memory: buffer.Description{Spec: "drm:renderD128", Exporter: "drm", Kind: "vram", Size: 4 << 20},
		NIC:    "mlx5_0", NICReason: "nearest to 0000:03:00.0", Policy: "prefer", Path: "direct", Route: "ibv_reg_dmabuf_mr", Why: "registered by ibv_reg_dmabuf_mr",
	}
	golden.Tables(t, map[string]golden.Result{
		"serve":       &serveResult{Listen: "127.0.0.1:7471", Protection: "loopback", Local: local},
		"serve-plain": &serveResult{Listen: "10.0.0.1:7471", Protection: "none", Local: local},
	})
}
