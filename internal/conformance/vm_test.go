// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package conformance

import (
	"fmt"
	"testing"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// testNIC is the testbed's software NIC.
const testNIC = "rxe0"

// onNIC is the setting with a real kernel: host memory, an exporter's, and the same staged. A
// test must leave no descriptor, RDMA object or dma-buf.
func onNIC(t testing.TB) *setting {
	testenv.NoGrowth(t, currentUsage)
	noGoroutines(t)
	return &setting{
		open: gpurdma.Open, nics: []string{testNIC}, listen: "127.0.0.1:0",
		kinds: []kind{
			{name: "host", spec: "host"}, {name: "vgem", spec: "drm:vgem"},
			{name: "staged", spec: "drm:vgem", opts: []gpurdma.BufferOption{gpurdma.StagedOnly()}, staged: true},
		},
	}
}

// usage counts resources that a test must free.
type usage struct {
	descriptors int
	rdma        string
	dmabufs     int
}

func currentUsage(t testing.TB) usage {
	t.Helper()
	c := must(rdmanl.Dial())(t)
	defer c.Close()
	s := must(c.Summary(testNIC))(t)
	bufs := must(dmabuf.KernelBufs(""))(t)
	return usage{testenv.Descriptors(t), fmt.Sprint(s), len(bufs)}
}

func TestVMConformance(t *testing.T) {
	testenv.VM(t)
	run(t, onNIC)
}
