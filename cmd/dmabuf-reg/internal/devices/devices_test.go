// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"testing"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/golden"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/nics"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// What people see, for results that no single machine has all of.
func TestDevicesTables(t *testing.T) {
	gpu := pciaddr.Addr{Bus: 3}
	golden.Tables(t, map[string]golden.Result{
		"devices": &Result{
			Allocators: []gpualloc.Description{
				{Spec: "drm:renderD128", Exporter: "drm", Driver: "xe", Device: "/dev/dri/renderD128", PCI: &gpu, Kind: gpualloc.KindVRAM, Available: true},
				{Spec: "drm:renderD129", Exporter: "drm", Driver: "softgpu", Class: "i915", Device: "/dev/dri/renderD129", PCI: &gpu, Kind: gpualloc.KindVRAM, Available: true},
				{Spec: "udmabuf", Exporter: "udmabuf", Driver: "udmabuf", Device: "/dev/udmabuf", Kind: gpualloc.KindSystem, Available: true, MaxSize: 64 << 20},
				{Spec: "heap:system", Exporter: "system", Device: "/dev/dma_heap/system", Kind: gpualloc.KindSystem, Why: "there is no such node", Remedy: "load it"},
			},
			NICs: []nics.Device{
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
		"devices-none": &Result{Libibverbs: "not installed"},
	})
}
