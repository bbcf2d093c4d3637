// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/golden"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/dmabuf"
)

// What people see, for results that no single machine has all of.
func TestInspectTables(t *testing.T) {
	golden.Tables(t, map[string]golden.Result{
		"inspect": &Result{
			Buffers: []Buffer{
				{Usage: dmabuf.Usage{Inode: 5, Exporter: "drm", Name: "weights", Size: 1 << 20, Holders: []dmabuf.Owner{{PID: 10, Comm: "trainer", FDs: []int{7, 8}}, {PID: 11, Comm: "helper", Maps: make([]dmabuf.Region, 2)}}}, Attached: []string{"0000:04:00.0"}},
				{Usage: dmabuf.Usage{Inode: 6, Exporter: "udmabuf", Size: 4 << 10}},
				{Usage: dmabuf.Usage{Inode: 7, Size: -1, Holders: []dmabuf.Owner{{PID: 12, Comm: "x", Maps: make([]dmabuf.Region, 1)}}}},
			},
			Unknown: []string{"a", "b", "c", "d", "e", "f", "g"},
		},
		"inspect-none":         &Result{},
		"inspect-none-of-pid":  &Result{PID: 12},
		"inspect-none-unknown": &Result{Unknown: []string{"process 1: permission denied"}},
	})
}

func TestAddKernelBuffers(t *testing.T) {
	kernel := []dmabuf.KernelBuf{
		{Inode: 3, Exporter: "drm", Size: 10, Attached: []string{"dev"}},
		{Inode: 2, Exporter: "heap", Size: 20},
	}
	usage := dmabuf.Usage{Inode: 3, Size: -1, Holders: []dmabuf.Owner{{PID: 1}}}

	all := &Result{Buffers: []Buffer{{Usage: usage}}}
	all.addKernel(kernel)
	if len(all.Buffers) != 2 || all.Buffers[0].Inode != 2 || len(all.Buffers[0].Holders) != 0 {
		t.Errorf("whole system: %+v", all.Buffers)
	}
	if b := all.Buffers[1]; b.Size != 10 || b.Exporter != "drm" || len(b.Attached) != 1 || len(b.Holders) != 1 {
		t.Errorf("what both know: %+v", b)
	}

	one := &Result{PID: 1, Buffers: []Buffer{{Usage: usage}}}
	one.addKernel(kernel)
	if len(one.Buffers) != 1 {
		t.Errorf("one process: %+v", one.Buffers)
	}
}

// A process that is gone is no failure of what was asked of it.
func TestNoProcessToInspect(t *testing.T) {
	_, err := inspectBuffers(1 << 30) // more than the kernel has
	e := cli.Explain(err)
	if len(e) != 1 || e[0].Kind != cli.KindUnavailable || e[0].Errno == nil || !strings.Contains(e[0].Message, "process 1073741824") || !strings.Contains(e[0].Message, "name one that runs") {
		t.Errorf("%+v", e)
	}
}
