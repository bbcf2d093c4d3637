// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package fi

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

// onNIC is the setting with a real kernel: host memory, memory that is registered as a dma-buf,
// and memory that is staged. A test must leave no descriptor, RDMA object or dma-buf.
func onNIC(t testing.TB) setting {
	testenv.VM(t)
	testenv.NoGrowth(t, currentUsage)
	return setting{
		open: func(t testing.TB, opt DomainOptions) *Domain {
			d := must(Open(testNIC, opt))(t)
			closing(t, d)
			return d
		},
		kinds: []kind{hostKind, exported("direct", "drm:vgem", DirectOnly), exported("staged", "drm:vgem", StagedOnly)},
	}
}

// exported returns memory of an allocator.
func exported(name, spec string, p Policy) kind {
	return kind{name, func(t testing.TB, e *Endpoint, size int64) *MR {
		t.Helper()
		a := must(gpualloc.Open(spec, gpualloc.Env{}))(t)
		closing(t, a)
		m := closingMR(t, e, must(domainFor(e).Allocate(t.Context(), a, size, MROptions{Policy: p}))(t))
		if path := m.Path(); path.Staged != (p == StagedOnly) || path.Reason != nil {
			t.Fatalf("%s: %+v", name, path)
		}
		return m
	}}
}

// usage counts resources that a test must free.
type usage struct {
	fds     int
	rdma    string
	dmabufs int
}

func currentUsage(t testing.TB) usage {
	t.Helper()
	c := must(rdmanl.Dial())(t)
	defer c.Close()
	s := must(c.Summary(testNIC))(t)
	bufs := must(dmabuf.KernelBufs(""))(t)
	return usage{testenv.Descriptors(t), fmt.Sprint(s), len(bufs)}
}

func TestVMOperations(t *testing.T)             { testOperations(t, onNIC(t)) }
func TestVMQueues(t *testing.T)                 { testQueues(t, onNIC(t)) }
func TestVMSelective(t *testing.T)              { testSelective(t, onNIC(t)) }
func TestVMFences(t *testing.T)                 { testFences(t, onNIC(t)) }
func TestVMConnectionless(t *testing.T)         { testConnectionless(t, onNIC(t)) }
func TestVMRemoteRefusals(t *testing.T)         { testRemoteRefusals(t, onNIC(t)) }
func TestVMPostingDoesNotAllocate(t *testing.T) { testPostingDoesNotAllocate(t, onNIC(t)) }
