// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/ioctl/ioctltest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// tree unpacks a txtar archive, as testenv.Files writes files.
func tree(t *testing.T, archive string) string {
	t.Helper()
	files := map[string]string{}
	for _, f := range txtar.Parse([]byte(archive)).Files {
		files[f.Name] = string(f.Data)
	}
	return testenv.Files(t, files)
}

// A discrete GPU, a virtio-gpu as Linux 6.12 shows it, vgem without a driver
// link and without a node, a faux device with a driver, connectors.
const sysTree = `
-- devices/pci0000:00/0000:00:01.0/0000:03:00.0/drm/card10/dev --
226:10
-- devices/pci0000:00/0000:00:01.0/0000:03:00.0/drm/card10/device --
-> ../../../0000:03:00.0
-- devices/pci0000:00/0000:00:01.0/0000:03:00.0/drm/card10/card10-DP-1/status --
connected
-- devices/pci0000:00/0000:00:01.0/0000:03:00.0/drm/renderD130/dev --
226:130
-- devices/pci0000:00/0000:00:01.0/0000:03:00.0/drm/renderD130/device --
-> ../../../0000:03:00.0
-- devices/pci0000:00/0000:00:01.0/0000:03:00.0/driver --
-> ../../../../bus/pci/drivers/amdgpu
-- bus/pci/drivers/amdgpu/bind --
-- devices/pci0000:00/0000:00:02.0/drm/card1/dev --
226:1
-- devices/pci0000:00/0000:00:02.0/drm/card1/device --
-> ../../../0000:00:02.0
-- devices/pci0000:00/0000:00:02.0/driver --
-> ../../../bus/pci/drivers/virtio-pci
-- bus/pci/drivers/virtio-pci/bind --
-- devices/pci0000:00/0000:00:02.0/virtio0/driver --
-> ../../../../bus/virtio/drivers/virtio_gpu
-- bus/virtio/drivers/virtio_gpu/bind --
-- devices/platform/vgem/drm/card2/dev --
226:2
-- devices/platform/vgem/drm/card2/device --
-> ../../../vgem
-- devices/faux/vkms/drm/card4/dev --
226:4
-- devices/faux/vkms/drm/card4/device --
-> ../../../vkms
-- devices/faux/vkms/driver --
-> ../../../bus/faux/drivers/faux_driver
-- bus/faux/drivers/faux_driver/bind --
-- class/drm/card4 --
-> ../../devices/faux/vkms/drm/card4
-- class/drm/card10 --
-> ../../devices/pci0000:00/0000:00:01.0/0000:03:00.0/drm/card10
-- class/drm/card10-DP-1 --
-> ../../devices/pci0000:00/0000:00:01.0/0000:03:00.0/drm/card10/card10-DP-1
-- class/drm/renderD130 --
-> ../../devices/pci0000:00/0000:00:01.0/0000:03:00.0/drm/renderD130
-- class/drm/card1 --
-> ../../devices/pci0000:00/0000:00:02.0/drm/card1
-- class/drm/card2 --
-> ../../devices/platform/vgem/drm/card2
-- class/drm/card3 --
-> ../../devices/gone
-- class/drm/version --
drm 1.1.0 20060810
`

func TestNodes(t *testing.T) {
	nodes, err := Nodes(tree(t, sysTree), "/none")
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ name, path, driver, pci, sys string }
	var got []row
	for _, n := range nodes {
		r := row{n.Name + " " + n.Type.String(), n.Path, n.Driver, "", n.SysPath}
		if a, ok := n.PCI(); ok {
			r.pci = a.String()
		}
		got = append(got, r)
	}
	const gpu = "devices/pci0000:00/0000:00:01.0/0000:03:00.0"
	want := []row{
		{"card1 primary", "/none/dri/card1", "virtio_gpu", "0000:00:02.0", "devices/pci0000:00/0000:00:02.0"},
		{"card2 primary", "/none/dri/card2", "vgem", "", "devices/platform/vgem"},
		{"card4 primary", "/none/dri/card4", "vkms", "", "devices/faux/vkms"},
		{"card10 primary", "/none/dri/card10", "amdgpu", "0000:03:00.0", gpu},
		{"renderD130 render", "/none/dri/renderD130", "amdgpu", "0000:03:00.0", gpu},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(row{})); d != "" {
		t.Error(d)
	}
	if nodes[4].Major != 226 || nodes[4].Minor != 130 {
		t.Errorf("%+v", nodes[4])
	}
}

func TestNodesElsewhere(t *testing.T) {
	if nodes, err := Nodes(t.TempDir(), ""); len(nodes) != 0 || err != nil {
		t.Errorf("no DRM: %v, %v", nodes, err)
	}
	broken := tree(t, "-- class/drm/card0/dev --\nnumber\n-- class/drm/card0/device/x --\n")
	if _, err := Nodes(broken, ""); err == nil || !strings.Contains(err.Error(), "card0") {
		t.Errorf("a bad device number: %v", err)
	}
	// A virtio function whose child has no driver has the PCI function's driver.
	odd := tree(t, strings.ReplaceAll(sysTree, "-- devices/pci0000:00/0000:00:02.0/virtio0/driver --", "-- devices/x/driver --"))
	nodes, err := Nodes(odd, "/none")
	if err != nil || nodes[0].Driver != "virtio-pci" {
		t.Errorf("%+v, %v", nodes, err)
	}
}

// fake opens a Device on an ordinary file whose ioctls come from a script.
func fake(t *testing.T, name string, steps ...ioctltest.Step) (*Device, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := ioctltest.NewScript(steps...)
	t.Cleanup(func() {
		if err := s.Err(); err != nil {
			t.Error(err)
		}
	})
	d, err := open(path, s)
	if err == nil {
		t.Cleanup(func() { d.Close() })
	}
	return d, err
}

func render(t *testing.T, steps ...ioctltest.Step) *Device {
	t.Helper()
	d, err := fake(t, "renderD128", steps...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOpenDropsMaster(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		want  error
	}{{0, nil}, {unix.EINVAL, nil}, {unix.EACCES, fs.ErrPermission}, {unix.ENOTTY, errors.ErrUnsupported}} {
		d, err := fake(t, "card0", ioctltest.Step{Req: reqDropMaster, Errno: c.errno})
		if !errors.Is(err, c.want) || (err == nil) != (d != nil) {
			t.Errorf("DROP_MASTER answers %v: %v, %v", c.errno, d, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "card0")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "modprobe vgem") {
		t.Errorf("missing node: %v", err)
	}
}

// versionSteps plays a driver whose name is text and whose other strings are
// empty; length is what the driver claims.
func versionSteps(text string, length uint64) []ioctltest.Step {
	answer := func(arg unsafe.Pointer) {
		v := (*abiVersion)(arg)
		v.Major, v.Minor, v.Patch = 1, 2, 3
		if v.Name != nil {
			copy(unsafe.Slice(v.Name, v.NameLen), text)
		}
		v.NameLen, v.DateLen, v.DescLen = length, 0, 0
	}
	return []ioctltest.Step{{Req: reqVersion, Fill: answer}, {Req: reqVersion, Fill: answer}}
}

func TestVersion(t *testing.T) {
	v, err := render(t, versionSteps("amdgpu", 6)...).Version()
	if want := (Version{Major: 1, Minor: 2, Patch: 3, Name: "amdgpu"}); v != want || err != nil {
		t.Errorf("%+v, %v", v, err)
	}
	// A driver that claims a name of gigabytes gets no such buffer.
	v, err = render(t, versionSteps("x", 1<<40)...).Version()
	if err != nil || len(v.Name) != maxVersionText || v.Name[0] != 'x' {
		t.Errorf("name of %d bytes, %v", len(v.Name), err)
	}
	if _, err := render(t, ioctltest.Step{Req: reqVersion, Errno: unix.ENOTTY}).Version(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no DRM node: %v", err)
	}
	second := ioctltest.Step{Req: reqVersion, Errno: unix.EFAULT}
	if _, err := render(t, versionSteps("", 3)[0], second).Version(); !errors.Is(err, unix.EFAULT) {
		t.Errorf("second call refused: %v", err)
	}
}

func TestIoctlErrors(t *testing.T) {
	for _, c := range []struct {
		name, words string
		req         uint32
		errno       unix.Errno
		call        func(*Device) error
	}{
		{"cap", "capability 0x5", reqGetCap, unix.EINVAL, func(d *Device) error { _, err := d.Cap(CapPrime); return err }},
		{"export, bad handle", "handle 9", reqPrimeHandleToFD, unix.ENOENT, func(d *Device) error { _, err := d.PrimeHandleToFD(9, ReadWrite); return err }},
		{"export, no PRIME", "ENOSYS", reqPrimeHandleToFD, unix.ENOSYS, func(d *Device) error { _, err := d.PrimeHandleToFD(9, 0); return err }},
		{"export, no fd left", "RLIMIT_NOFILE", reqPrimeHandleToFD, unix.EMFILE, func(d *Device) error { _, err := d.PrimeHandleToFD(9, 0); return err }},
		{"close", "handle 9", reqGemClose, unix.EINVAL, func(d *Device) error { return d.GEMClose(9) }},
		{"create on render node", "primary node", reqCreateDumb, unix.EACCES, func(d *Device) error { _, err := d.CreateDumb(1, 1, 32); return err }},
		{"create, no memory", "ENOMEM", reqCreateDumb, unix.ENOMEM, func(d *Device) error { _, err := d.CreateDumbSize(1); return err }},
		{"map", "handle 9", reqMapDumb, unix.ENOENT, func(d *Device) error { _, err := d.MapDumb(9); return err }},
		{"destroy", "handle 9", reqDestroyDumb, unix.EINVAL, func(d *Device) error { return d.DestroyDumb(9) }},
	} {
		err := c.call(render(t, ioctltest.Step{Req: c.req, Errno: c.errno}))
		if !errors.Is(err, c.errno) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v; want %v with %q", c.name, err, c.errno, c.words)
		}
	}
}

// An answer that is no dma-buf is refused, and the descriptor closed.
func TestExportChecksTheAnswer(t *testing.T) {
	raw, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(fd int) ioctltest.Step {
		return ioctltest.Step{Req: reqPrimeHandleToFD, Fill: func(arg unsafe.Pointer) {
			p := (*abiPrimeHandle)(arg)
			if p.Handle != 3 || p.Flags != ReadWrite|Cloexec || p.FD != -1 {
				t.Errorf("argument %+v", *p)
			}
			p.FD = int32(fd)
		}}
	}
	if _, err := render(t, answer(raw)).PrimeHandleToFD(3, ReadWrite); !errors.Is(err, dmabuf.ErrNotDMABuf) {
		t.Error(err)
	}
	if _, err := unix.FcntlInt(uintptr(raw), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("the descriptor is still open: %v", err)
	}
	if _, err := render(t, answer(-1)).PrimeHandleToFD(3, ReadWrite); !errors.Is(err, unix.EBADF) {
		t.Errorf("answer -1: %v", err)
	}
}

// A driver that answers less than asked for is caught, and its buffer dropped.
func TestDumbTooSmall(t *testing.T) {
	d := render(t,
		ioctltest.Step{Req: reqCreateDumb, Fill: func(arg unsafe.Pointer) {
			c := (*abiCreateDumb)(arg)
			if c.BPP != 32 || int(c.Width)*4 != os.Getpagesize() || c.Height != 2 {
				t.Errorf("argument %+v", *c)
			}
			c.Handle, c.Size = 5, 1
		}},
		ioctltest.Step{Req: reqDestroyDumb, Fill: func(arg unsafe.Pointer) {
			if h := (*abiDestroyDumb)(arg).Handle; h != 5 {
				t.Errorf("destroyed handle %d", h)
			}
		}})
	if _, err := d.CreateDumbSize(int64(os.Getpagesize()) + 1); !errors.Is(err, unix.EPROTO) {
		t.Error(err)
	}
	for _, size := range []int64{0, -1, MaxDumb() + 1} {
		if _, err := d.CreateDumbSize(size); !errors.Is(err, failure.ErrRange) {
			t.Errorf("CreateDumbSize(%d): %v", size, err)
		}
	}
}

func TestClosed(t *testing.T) {
	d := render(t)
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	_, versionErr := d.Version()
	_, capErr := d.Cap(CapPrime)
	_, dumbErr := d.CreateDumbSize(1)
	_, mmapErr := d.Mmap(0, 1)
	_, primeErr := d.PrimeHandleToFD(1, 0)
	for name, err := range map[string]error{
		"Version": versionErr, "Cap": capErr, "CreateDumbSize": dumbErr, "Mmap": mmapErr, "PrimeHandleToFD": primeErr,
		"GEMClose": d.GEMClose(1), "Do": d.Do(func(int) error { return nil }),
	} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}
