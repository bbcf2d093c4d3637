// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// exported is of a driver's module, by the exporter's name.
func exported(exporter, module string) func(*abi.Record) {
	return func(w *abi.Record) {
		w.Exporter, w.Owner = [24]byte{}, [24]byte{}
		set(w.Exporter[:], exporter)
		set(w.Owner[:], module)
	}
}

// on is on a NIC, whose function has peer-to-peer or not.
func on(nic, function string, peer bool) func(*abi.Record) {
	return func(w *abi.Record) {
		clear(w.IBDev[:])
		clear(w.Dev.PCI[:])
		clear(w.Dev.Name[:])
		set(w.IBDev[:], nic)
		set(w.Dev.PCI[:], function)
		set(w.Dev.Name[:], function)
		w.Have &^= abi.HaveP2P
		if peer {
			w.Have |= abi.HaveP2P
		}
	}
}

func changes(list ...func(*abi.Record)) func(*abi.Record) {
	return func(w *abi.Record) {
		for _, change := range list {
			change(w)
		}
	}
}

// The exporter's name and the function that refused pick a cause that the errno alone
// does not tell. The rules' sources are in internal/refusal.
func TestExplainByExporter(t *testing.T) {
	pinRefused := []ret{{abi.FuncGet, 0, 0}, {abi.FuncExporterAttach, 0, 0}, {abi.FuncAttach, 0, 0}, {abi.FuncExporterPin, unix.EINVAL, 1}, {abi.FuncPin, unix.EINVAL, 0}, {abi.FuncUmemGet, unix.EINVAL, 0}}
	far := func(w *abi.Record) { w.Distance = -1; set(w.Provider[:], "0000:03:00.0") }
	for _, row := range []struct {
		name    string
		before  []*abi.Record
		rec     *abi.Record
		stage   Stage
		cause   string
		words   []string
		mustNot []string
	}{
		{ // NVIDIA/open-gpu-kernel-modules#1130
			"nvidia-drm does not map video memory", nil,
			refused(unix.ENOMEM, exported("drm", "nvidia_drm"), ret{abi.FuncGet, 0, 0}, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncExporterMap, unix.ENOMEM, 2}, ret{abi.FuncMap, unix.ENOMEM, 0}),
			StageMap, refusal.VideoMemory.String(), []string{"exporter nvidia_drm refused map", "exporter nvidia-drm does not map video memory", "cuMemGetHandleForAddressRange"}, []string{"free memory"},
		},
		{
			"amdgpu is short of memory", nil,
			refused(unix.ENOMEM, exported("drm", "amdgpu"), ret{abi.FuncGet, 0, 0}, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncExporterMap, unix.ENOMEM, 2}, ret{abi.FuncMap, unix.ENOMEM, 0}),
			StageMap, "", []string{"exporter amdgpu refused map"}, []string{"video memory"},
		},
		{ // openucx/ucx#11571
			"NVIDIA's gate", nil,
			refused(errno.ENOTSUPP, exported("nv_dmabuf", "nvidia"), ret{abi.FuncGet, 0, 0}, ret{abi.FuncExporterAttach, errno.ENOTSUPP, 0}, ret{abi.FuncAttach, errno.ENOTSUPP, 0}),
			StageAttach, refusal.Gate.String(), []string{"gate in NVIDIA's driver", "NVRM: dma-buf attach failed:", "p2pcheck explain P2P-NV-GATE P2P-NV-FORCEPCIE"}, nil,
		},
		{ // the exporter was not asked
			"524 of the NIC's driver", nil,
			refused(errno.ENOTSUPP, exported("nv_dmabuf", "nvidia"), ret{abi.FuncGet, 0, 0}, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncMap, 0, 0}),
			StageDriver, "", []string{"the driver of mlx5_0 refused after"}, []string{"NVRM"},
		},
		{ // amdgpu_dma_buf_pin
			"pinned for a NIC that is known", []*abi.Record{made(new(clock), 1, on("rxe0", "0000:04:00.0", true))},
			refused(unix.EINVAL, on("rxe1", "0000:09:00.0", false), pinRefused...),
			StagePin, refusal.Pinned.String(), []string{"attached to rxe0, too", "rxe1 does not reach", "a buffer for each NIC"}, nil,
		},
		{
			"pinned for another, and the way is known", []*abi.Record{made(new(clock), 1, on("rxe0", "0000:04:00.0", true))},
			refused(unix.EINVAL, changes(on("rxe1", "0000:09:00.0", false), far), append([]ret{{abi.FuncP2PDistance, 1, 0}}, pinRefused...)...),
			StagePin, refusal.Pinned.String(), []string{"attached to rxe0, too", "importer 0000:09:00.0 cannot reach 0000:03:00.0: distance -1", "a buffer for each NIC"}, nil,
		},
		{
			"pinned for one that the tracer has not seen", nil,
			refused(unix.EINVAL, on("rxe1", "0000:09:00.0", false), pinRefused...),
			StagePin, refusal.Pinned.String(), []string{"another importer has pinned the buffer"}, nil,
		},
		{ // vfio_pci_dma_buf_map
			"vfio, and the way is known", nil,
			refused(unix.EINVAL, changes(exported("vfio_pci_core", "vfio_pci_core"), far), ret{abi.FuncGet, 0, 0}, ret{abi.FuncP2PDistance, 1, 0}, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncExporterMap, unix.EINVAL, 0}, ret{abi.FuncMap, unix.EINVAL, 0}),
			StageMap, refusal.Unreachable.String(), []string{"cannot reach 0000:03:00.0: distance -1", "p2pcheck"}, []string{"answers EINVAL where"},
		},
		{
			"vfio, and the way is not known", nil,
			refused(unix.EINVAL, exported("vfio_pci_core", "vfio_pci_core"), ret{abi.FuncGet, 0, 0}, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncExporterMap, unix.EINVAL, 0}, ret{abi.FuncMap, unix.EINVAL, 0}),
			StageMap, refusal.Unreachable.String(), []string{"answers EINVAL where", "p2pcheck"}, nil,
		},
		{
			"a pin that refuses a peer", []*abi.Record{made(new(clock), 1, on("rxe0", "0000:04:00.0", true))},
			refused(unix.EINVAL, on("rxe1", "0000:09:00.0", true), pinRefused...),
			StagePin, "", []string{"exporter amdgpu refused pin"}, []string{"rxe0"},
		},
		{
			"an attach that refuses", []*abi.Record{made(new(clock), 1, on("rxe0", "0000:04:00.0", true))},
			refused(unix.EINVAL, on("rxe1", "0000:09:00.0", false), ret{abi.FuncGet, 0, 0}, ret{abi.FuncExporterAttach, unix.EINVAL, 0}, ret{abi.FuncAttach, unix.EINVAL, 0}),
			StageAttach, "", []string{"refused to be attached"}, []string{"rxe0"},
		},
		{
			"its own registration is no other's", []*abi.Record{made(new(clock), 1, on("rxe1", "0000:09:00.0", true))},
			refused(unix.EINVAL, on("rxe1", "0000:09:00.0", false), pinRefused...),
			StagePin, refusal.Pinned.String(), []string{"another importer has pinned"}, []string{"attached to rxe1"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := testJoiner(10)
			root := t.TempDir()
			j.conv.findings = newFindings(refusal.Machine{Sys: sysfs.New(root), Proc: procfs.New(root)})
			for _, w := range row.before {
				j.handle(w)
			}
			row.rec.Head.ID = 9
			j.handle(row.rec)
			events := j.take()
			f := events[len(events)-1].Record.Explain()
			if f.Stage != row.stage || f.Cause != row.cause {
				t.Errorf("stage %q, cause %q, want %q, %q: %v", f.Stage, f.Cause, row.stage, row.cause, f)
			}
			mustHave(t, f.String(), row.words...)
			for _, not := range row.mustNot {
				if strings.Contains(f.String(), not) {
					t.Errorf("%q is in it: %v", not, f)
				}
			}
		})
	}
}

// A storm of refusals looks at the machine's files once.
func TestFindingsAreRemembered(t *testing.T) {
	j := testJoiner(10)
	root := t.TempDir()
	j.conv.findings = newFindings(refusal.Machine{Sys: sysfs.New(root), Proc: procfs.New(root)})
	for i := range 3 * maxFindings {
		w := refused(errno.ENOTSUPP, exported("nv_dmabuf", "nvidia"), ret{abi.FuncGet, 0, 0}, ret{abi.FuncExporterAttach, errno.ENOTSUPP, 0}, ret{abi.FuncAttach, errno.ENOTSUPP, 0})
		w.Head.ID = uint64(i + 1)
		j.handle(w)
	}
	if n := len(j.conv.findings.seen); n != 1 {
		t.Errorf("%d refusals remembered for one cause", n)
	}
	for i := range 3 * maxFindings {
		w := refused(unix.Errno(300+i), nil, ret{abi.FuncGet, 0, 0}, ret{abi.FuncExporterMap, unix.Errno(300 + i), 0}, ret{abi.FuncMap, unix.Errno(300 + i), 0})
		w.Head.ID = uint64(10000 + i)
		j.handle(w)
		if n := len(j.conv.findings.seen); n > maxFindings {
			t.Fatalf("%d refusals remembered", n)
		}
	}
}
