// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// What QEMU's virtio-gpu without a 3D renderer and without blobs answers: the
// driver's own ioctls reach it, and its refusals are explained.
func TestVMVirtgpu(t *testing.T) {
	testenv.VM(t)
	d := device(t, "virtio_gpu", Primary)
	g, err := d.Virtgpu()
	if err != nil {
		t.Fatal(err)
	}
	for p, name := range map[VirtgpuParam]string{Virtgpu3D: "3D", VirtgpuBlob: "blobs", VirtgpuHostVisible: "host-visible memory", VirtgpuCrossDevice: "sharing"} {
		if n, err := g.Param(p); n != 0 || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	if _, err := g.Param(4711); !errors.Is(err, unix.EINVAL) {
		t.Errorf("unknown parameter: %v", err)
	}
	for _, mem := range []VirtgpuMem{VirtgpuGuest, VirtgpuHost} {
		if _, err := g.Create(1<<20, mem, VirtgpuMappable|VirtgpuShareable, 0); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "blob=on") {
			t.Errorf("blob of kind %d: %v", mem, err)
		}
	}
	if _, err := g.Caps(1, 1, 256); !errors.Is(err, unix.ENOSYS) {
		t.Errorf("capabilities: %v", err)
	}
	dumb, err := d.CreateDumbSize(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer d.DestroyDumb(dumb.Handle)
	want, err := d.MapDumb(dumb.Handle)
	if err != nil {
		t.Fatal(err)
	}
	if offset, err := g.MmapOffset(dumb.Handle); err != nil || offset != want {
		t.Errorf("offset %#x, %v; want %#x", offset, err, want)
	}
	if _, err := g.MmapOffset(4711); !errors.Is(err, unix.ENOENT) {
		t.Errorf("offset of an unknown handle: %v", err)
	}
}
