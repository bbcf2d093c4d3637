// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package memory

import (
	"fmt"
	"testing"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// testNIC is the testbed's software NIC.
const testNIC = "rxe0"

// usage counts resources that a test must free.
type usage struct {
	fds     int
	rdma    string
	dmabufs int
}

// Flush reads back the memory of every exporter, and no other memory.
func TestVMFlush(t *testing.T) {
	testenv.VM(t)
	testenv.NoGrowth(t, func(t testing.TB) usage {
		c := must(rdmanl.Dial())(t)
		defer c.Close()
		return usage{testenv.Descriptors(t), fmt.Sprint(must(c.Summary(testNIC))(t)), len(must(dmabuf.KernelBufs(""))(t))}
	})
	n := must(OpenNIC(testNIC, NICOptions{}))(t)
	closing(t, n)
	exported := func(name, spec string, p Policy) {
		t.Run(name, func(t *testing.T) {
			a := must(gpualloc.Open(spec, gpualloc.Env{}))(t)
			closing(t, a)
			testFlush(t, n, must(n.Allocate(t.Context(), a, 100, BufferOptions{Policy: p}))(t))
		})
	}
	t.Run("host", func(t *testing.T) { testFlush(t, n, must(n.AllocHost(100))(t)) })
	for _, x := range testenv.Exporters() {
		if x.Expected(t) {
			x.Need(t)
			exported(x.Spec, x.Spec, PreferDirect)
		}
	}
	exported("staged", "drm:vgem", StagedOnly)
}
