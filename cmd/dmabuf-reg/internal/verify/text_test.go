// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/golden"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// What people see, for results that no single machine has all of.
func TestVerifyTables(t *testing.T) {
	mrn := uint32(7)
	report := canary.Report{
		OK: true, Spec: "drm:renderD128", Exporter: "drm", Driver: "xe", Device: "/dev/dri/renderD128", NIC: "mlx5_0", Size: 4 << 20, Seed: 42,
		Inode: 1234, Route: ibvfd.RouteProvider, MRs: 1, MRN: &mrn, LKey: 0x1f00, RKey: 0x1f01, RegTime: 123456,
		WriteRate: 21.5e9, ReadRate: 18.25e9, VerifiedBytes: 40 << 20, Elapsed: time.Second,
	}
	bad := canary.Report{
		Spec: "udmabuf", Exporter: "udmabuf", Driver: "udmabuf", NIC: "rxe0", Size: 4 << 20, Seed: 42, Inode: 99, Route: ibvfd.RouteIoctl, MRs: 1,
		LKey: 0xa, RKey: 0xb, RegTime: 99 * time.Microsecond, VerifiedBytes: 1 << 20,
		Cases: []canary.Case{
			{Name: canary.CaseWhole, Length: 4 << 20, Detail: "the buffer after an RDMA WRITE: 1 wrong byte(s)"},
			{Name: canary.CaseFirstByte, Length: 4 << 20, OK: true, Detail: "1 range(s), 10 bytes verified"},
			{Name: canary.CasePageCrossing, Length: 4 << 20, Skipped: true, Detail: "one page only"},
			{Name: canary.CaseIOVA, NotRun: true, Detail: "not run"},
		},
	}
	missed := &located{} // by a program that says nothing
	golden.Tables(t, map[string]golden.Result{
		"verify": &Result{
			Seed: 42, Size: 4 << 20, Elapsed: 1500 * time.Millisecond,
			Rows:     []Row{{Spec: "drm:renderD128", NIC: "mlx5_0", OK: true, Report: &report}},
			NotTried: []buffer.NotTried{{Spec: "heap:system", Why: "there is no such node", Remedy: "load it"}},
		},
		"verify-located": &Result{
			Seed: 42, Size: 4 << 20, Elapsed: 1500 * time.Millisecond,
			Rows: []Row{
				{Spec: "drm:renderD128", NIC: "mlx5_0", OK: true, Report: &report, Located: &located{Found: true}},
				{Spec: "drm:renderD128", NIC: "mlx5_1", OK: true, Report: &report, Located: missed, Staged: (&Row{Located: missed}).staged()},
				{Spec: "udmabuf", NIC: "mlx5_0", OK: true, Report: &report},
			},
		},
		"verify-unlocated": &Result{
			Seed: 42, Size: 4 << 20, Elapsed: 1500 * time.Millisecond,
			Rows:      []Row{{Spec: "udmabuf", NIC: "mlx5_0", OK: true, Report: &report}},
			Unlocated: "no memory that was tried is on a PCI device, so there was nowhere to look",
		},
		"verify-interrupted": &Result{
			Seed: 42, Size: 4 << 20, Elapsed: 1500 * time.Millisecond, interrupted: true,
			Rows: []Row{{Spec: "drm:renderD128", NIC: "mlx5_0", OK: true, Report: &report}},
		},
		"verify-failed": &Result{
			Seed: 42, Size: 4 << 20, Elapsed: 1500 * time.Millisecond,
			Rows: []Row{
				{Spec: "drm:renderD128", NIC: "mlx5_0", OK: true, Report: &report},
				{Spec: "udmabuf", NIC: "rxe0", Report: &bad},
				{Spec: "heap:system"},
			},
		},
	})
}
