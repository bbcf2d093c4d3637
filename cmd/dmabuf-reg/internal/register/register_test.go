// SPDX-License-Identifier: Apache-2.0

package register

import (
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/golden"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// What people see, for results that no single machine has all of.
func TestRegisterTables(t *testing.T) {
	mrn := uint32(7)
	golden.Tables(t, map[string]golden.Result{
		"register": &Result{
			Memory: buffer.Description{Spec: "udmabuf", Exporter: "udmabuf", Kind: "system", Requested: 1, Size: 4 << 10, Inode: 17, Segments: 1},
			NIC:    "rxe0", NICReason: "the only one", Offset: 16, Length: 4080, IOVA: 16, Access: "local-write", Count: 2,
			MRs: []mr{
				{Number: &mrn, LKey: 1, RKey: 2, IOVA: 16, Length: 4080, Route: ibvfd.RouteIoctl, RegTime: 80 * time.Microsecond},
				{LKey: 3, RKey: 4, IOVA: 16, Length: 4080, Route: ibvfd.RouteIoctl, RegTime: 90 * time.Microsecond},
			},
			P50: 80 * time.Microsecond, P99: 90 * time.Microsecond,
		},
		"register-many": &Result{
			Memory: buffer.Description{Device: "fd 3", Exporter: "drm", Kind: "unknown", Requested: 1 << 20, Size: 1 << 20, Inode: 18, Segments: 1},
			NIC:    "rxe0", NICReason: "asked for by name", Length: 1 << 20, Access: "0x7", Count: 20,
			MRs: make([]mr, 20), P50: time.Millisecond, P99: time.Second,
		},
	})
}
