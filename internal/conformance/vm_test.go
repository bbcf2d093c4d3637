// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package conformance

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

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

// Verified writes over a NIC give no alarm: 64 MB, in a soak 1 GB.
func TestVMVerifyQuiet(t *testing.T) {
	testenv.VM(t)
	onNIC(t).quiet(t, testenv.Soak(64, 1024))
}

// The goroutines of an idle Fabric are those that the documentation of package gpurdma counts.
func TestVMIdleGoroutines(t *testing.T) {
	testenv.VM(t)
	s := onNIC(t)
	a, b := s.fabric(t), s.fabric(t)
	want := 4 // 2 for each
	count := func(what string, more int) {
		t.Helper()
		want += more
		got := 0
		for range 200 * testenv.Slow() {
			if got = fabricGoroutines(); got == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s: %d goroutines of the library, want %d", what, got, want)
	}
	count("opened", 0)
	ln := must(b.Listen(s.listen, gpurdma.Config{}))(t)
	count("listening", 1)
	p := &pair{t: t, a: a, b: b, ln: ln}
	p.client, p.server = p.connect(gpurdma.Config{})
	count("connected", 4) // of each side, the completion queue's and the exchange's
	p.connect(gpurdma.Config{})
	count("connected again", 2)
}

// fabricGoroutines counts the goroutines that functions of the module have started and that are
// not of the test.
func fabricGoroutines() (n int) {
	stacks := make([]byte, 1<<20)
	for _, g := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(g, "gpurdma/internal/") && !strings.Contains(g, "testing.tRunner") {
			n++
		}
	}
	return n
}
