// SPDX-License-Identifier: Apache-2.0

package testenv

import "testing"

// Exporter makes dma-bufs on the testbed's kernels.
type Exporter struct {
	Spec   string // what gpualloc.Open takes
	Name   string // the dma-buf's exporter as fdinfo shows it
	Driver string // as gpualloc describes it
	since  string // the testbed's series that has it first
	node   string // a file that is there if the exporter is
}

// exporters are all that Debian's kernels have without hardware.
var exporters = []Exporter{
	{"drm:vgem", "drm", "vgem", "6.1", "/sys/module/vgem"},
	{"drm:virtio_gpu", "virtio_gpu", "virtio_gpu", "6.1", "/sys/module/virtio_gpu"},
	{"udmabuf", "udmabuf", "udmabuf", "6.12", "/dev/udmabuf"},
	{"heap:system", "system", "dma-heap", "6.12", "/dev/dma_heap/system"},
}

// EachExporter runs a test on every exporter of the running kernel, as a
// subtest with the name of its spec. One that this kernel should have
// and that is missing is a failure.
func EachExporter(t *testing.T, run func(t *testing.T, x Exporter)) {
	t.Helper()
	VM(t)
	for _, x := range exporters {
		t.Run(x.Spec, func(t *testing.T) {
			x.Need(t)
			run(t, x)
		})
	}
}

// Exporters lists all that any of the testbed's kernels has.
func Exporters() []Exporter { return exporters }

// Need is [Need] for the exporter.
func (x Exporter) Need(t testing.TB) {
	t.Helper()
	Need(t, x.Spec, x.since, Node(x.node))
}

// Repeated reports whether this is the exporter for what is done thousands of
// times: where all are one to what is tested, the others need fewer rounds of it.
// It is udmabuf, whose pages are there already, and vgem where there is none.
func (x Exporter) Repeated(t testing.TB) bool {
	spec := "udmabuf"
	if !AtLeast(t, "6.12") {
		spec = "drm:vgem"
	}
	return x.Spec == spec
}

// Expected reports whether the running kernel is of a series and an architecture that have it.
func (x Exporter) Expected(t testing.TB) bool { return AtLeast(t, x.since) && !Lacks(x.Spec) }
