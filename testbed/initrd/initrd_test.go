// SPDX-License-Identifier: Apache-2.0

package initrd

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// TestWrite reads the image with cpio, whose idea of the format the kernel
// shares.
func TestWrite(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio is not installed")
	}
	var image bytes.Buffer
	err = Write(&image, []byte("#!init"),
		[]Module{{Name: "virtio_pci", Data: []byte("A")}},
		[]Module{{Name: "drm_kms_helper", Params: "fbdev_emulation=0", Data: []byte("BB")}, {Name: "vgem", Data: []byte("CCC")}})
	if err != nil {
		t.Fatal(err)
	}
	extract := func(args ...string) string {
		cmd := exec.Command(cpio, append([]string{"-i", "--quiet"}, args...)...)
		cmd.Stdin = bytes.NewReader(image.Bytes())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("cpio %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	if list := extract("--list"); !strings.Contains(list, "init\nmodules/early-000-virtio_pci.ko\nmodules/late-000-drm_kms_helper.ko\nmodules/late-001-vgem.ko\nmodules/list\n") {
		t.Errorf("contents:\n%s", list)
	}
	if got := extract("--to-stdout", "init"); got != "#!init" {
		t.Errorf("init is %q", got)
	}
	want := "early early-000-virtio_pci.ko \nlate late-000-drm_kms_helper.ko fbdev_emulation=0\nlate late-001-vgem.ko \n"
	if got := extract("--to-stdout", "modules/list"); got != want {
		t.Errorf("list:\n%swant\n%s", got, want)
	}
}
