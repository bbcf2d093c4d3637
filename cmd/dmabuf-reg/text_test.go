// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/pciaddr"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares what is printed with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// tables compares what each result prints with the file of its name.
func tables(t *testing.T, results map[string]result) {
	for name, r := range results {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := r.text(&b); err != nil {
				t.Fatal(err)
			}
			golden(t, name, b.String())
		})
	}
}

// What people see, for results that no single machine has all of.
func TestTables(t *testing.T) {
	gpu := pciaddr.Addr{Bus: 3}
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
	tables(t, map[string]result{
		"devices": &devicesResult{
			Allocators: []gpualloc.Description{
				{Spec: "drm:renderD128", Exporter: "drm", Driver: "xe", Device: "/dev/dri/renderD128", PCI: &gpu, Kind: gpualloc.KindVRAM, Available: true},
				{Spec: "drm:renderD129", Exporter: "drm", Driver: "softgpu", Class: "i915", Device: "/dev/dri/renderD129", PCI: &gpu, Kind: gpualloc.KindVRAM, Available: true},
				{Spec: "udmabuf", Exporter: "udmabuf", Driver: "udmabuf", Device: "/dev/udmabuf", Kind: gpualloc.KindSystem, Available: true, MaxSize: 64 << 20},
				{Spec: "heap:system", Exporter: "system", Device: "/dev/dma_heap/system", Kind: gpualloc.KindSystem, Why: "there is no such node", Remedy: "load it"},
			},
			NICs: []nic{
				{
					Info:    ibdev.Info{Name: "mlx5_0", Driver: "mlx5_core", PCI: &pciaddr.Addr{Bus: 4}, NetDevs: []string{"eth1"}, Ports: []ibdev.Port{{Num: 1, State: ibdev.PortActive, MTU: 4 << 10}}},
					Support: &ibvfd.Support{DMABufKernel: ibvfd.Yes, DMABufProvider: ibvfd.Yes},
				},
				{
					Info:    ibdev.Info{Name: "rxe0", Driver: "rdma_rxe", NetDevs: []string{"eth0"}, Ports: []ibdev.Port{{Num: 1, State: ibdev.PortDown, MTU: 1 << 10}}},
					Problem: "open /dev/infiniband/uverbs1: permission denied",
				},
			},
			Libibverbs: "/usr/lib/libibverbs.so.1 (1.14.44.0)",
		},
		"devices-none": &devicesResult{Libibverbs: "not installed"},
		"register": &registerResult{
			Memory: allocated{Spec: "udmabuf", Exporter: "udmabuf", Kind: "system", Requested: 1, Size: 4 << 10, Inode: 17, Segments: 1},
			NIC:    "rxe0", NICReason: "the only one", Offset: 16, Length: 4080, IOVA: 16, Access: "local-write", Count: 2,
			MRs: []mr{
				{Number: &mrn, LKey: 1, RKey: 2, IOVA: 16, Length: 4080, Route: ibvfd.RouteIoctl, RegTime: 80 * time.Microsecond},
				{LKey: 3, RKey: 4, IOVA: 16, Length: 4080, Route: ibvfd.RouteIoctl, RegTime: 90 * time.Microsecond},
			},
			P50: 80 * time.Microsecond, P99: 90 * time.Microsecond,
		},
		"register-many": &registerResult{
			Memory: allocated{Device: "fd 3", Exporter: "drm", Kind: "unknown", Requested: 1 << 20, Size: 1 << 20, Inode: 18, Segments: 1},
			NIC:    "rxe0", NICReason: "asked for by name", Length: 1 << 20, Access: "0x7", Count: 20,
			MRs: make([]mr, 20), P50: time.Millisecond, P99: time.Second,
		},
		"verify": &verifyResult{
			Seed: 42, Size: 4 << 20, Elapsed: 1500 * time.Millisecond,
			Rows:     []verifyRow{{Spec: "drm:renderD128", NIC: "mlx5_0", OK: true, Report: &report}},
			NotTried: []notTried{{Spec: "heap:system", Why: "there is no such node", Remedy: "load it"}},
		},
		"verify-located": &verifyResult{
			Seed: 42, Size: 4 << 20, Elapsed: 1500 * time.Millisecond,
			Rows: []verifyRow{
				{Spec: "drm:renderD128", NIC: "mlx5_0", OK: true, Report: &report, Located: &located{Found: true}},
				{Spec: "drm:renderD128", NIC: "mlx5_1", OK: true, Report: &report, Located: missed, Staged: (&verifyRow{Located: missed}).staged()},
				{Spec: "udmabuf", NIC: "mlx5_0", OK: true, Report: &report},
			},
		},
		"verify-unlocated": &verifyResult{
			Seed: 42, Size: 4 << 20, Elapsed: 1500 * time.Millisecond,
			Rows:      []verifyRow{{Spec: "udmabuf", NIC: "mlx5_0", OK: true, Report: &report}},
			Unlocated: "no memory that was tried is on a PCI device, so there was nowhere to look",
		},
		"verify-interrupted": &verifyResult{
			Seed: 42, Size: 4 << 20, Elapsed: 1500 * time.Millisecond, interrupted: true,
			Rows: []verifyRow{{Spec: "drm:renderD128", NIC: "mlx5_0", OK: true, Report: &report}},
		},
		"verify-failed": &verifyResult{
			Seed: 42, Size: 4 << 20, Elapsed: 1500 * time.Millisecond,
			Rows: []verifyRow{
				{Spec: "drm:renderD128", NIC: "mlx5_0", OK: true, Report: &report},
				{Spec: "udmabuf", NIC: "rxe0", Report: &bad},
				{Spec: "heap:system"},
			},
		},
		"inspect": &inspectResult{
			Buffers: []inspectedBuf{
				{Usage: dmabuf.Usage{Inode: 5, Exporter: "drm", Name: "weights", Size: 1 << 20, Holders: []dmabuf.Owner{{PID: 10, Comm: "trainer", FDs: []int{7, 8}}, {PID: 11, Comm: "helper", Maps: make([]dmabuf.Region, 2)}}}, Attached: []string{"0000:04:00.0"}},
				{Usage: dmabuf.Usage{Inode: 6, Exporter: "udmabuf", Size: 4 << 10}},
				{Usage: dmabuf.Usage{Inode: 7, Size: -1, Holders: []dmabuf.Owner{{PID: 12, Comm: "x", Maps: make([]dmabuf.Region, 1)}}}},
			},
			Unknown: []string{"a", "b", "c", "d", "e", "f", "g"},
		},
		"inspect-none":         &inspectResult{},
		"inspect-none-of-pid":  &inspectResult{PID: 12},
		"inspect-none-unknown": &inspectResult{Unknown: []string{"process 1: permission denied"}},
	})
}

func TestAddKernelBuffers(t *testing.T) {
	kernel := []dmabuf.KernelBuf{
		{Inode: 3, Exporter: "drm", Size: 10, Attached: []string{"dev"}},
		{Inode: 2, Exporter: "heap", Size: 20},
	}
	usage := dmabuf.Usage{Inode: 3, Size: -1, Holders: []dmabuf.Owner{{PID: 1}}}

	all := &inspectResult{Buffers: []inspectedBuf{{Usage: usage}}}
	all.addKernel(kernel)
	if len(all.Buffers) != 2 || all.Buffers[0].Inode != 2 || len(all.Buffers[0].Holders) != 0 {
		t.Errorf("whole system: %+v", all.Buffers)
	}
	if b := all.Buffers[1]; b.Size != 10 || b.Exporter != "drm" || len(b.Attached) != 1 || len(b.Holders) != 1 {
		t.Errorf("what both know: %+v", b)
	}

	one := &inspectResult{PID: 1, Buffers: []inspectedBuf{{Usage: usage}}}
	one.addKernel(kernel)
	if len(one.Buffers) != 1 {
		t.Errorf("one process: %+v", one.Buffers)
	}
}

func TestAccessFlag(t *testing.T) {
	for in, want := range map[string]string{
		"local-write":                            "local-write",
		"remote-read,local-write , remote-write": "local-write,remote-write,remote-read",
		"0x7":                                    "local-write,remote-write,remote-read",
		"0":                                      "0x0",
		"0x40000001":                             "local-write,0x40000000",
		"relaxed-ordering":                       "relaxed-ordering",
	} {
		var f accessFlag
		if err := f.Set(in); err != nil || f.String() != want {
			t.Errorf("%q is %q, %v; want %q", in, f.String(), err, want)
		}
		var back accessFlag
		if first, _, _ := strings.Cut(f.String(), ",0x"); first == f.String() {
			if err := back.Set(f.String()); err != nil || back != f {
				t.Errorf("%q does not come back: %v, %v", f.String(), back, err)
			}
		}
	}
	for _, in := range []string{"", "nope", "local-write,,remote-read", "-1"} {
		var f accessFlag
		if err := f.Set(in); err == nil {
			t.Errorf("%q was taken as %v", in, f.String())
		}
	}
}
