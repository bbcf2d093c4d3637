// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

var drivers = []string{"vgem", "virtio_gpu"}

// node finds a driver's node in the testbed.
func node(t *testing.T, driver string, kind NodeType) Node {
	t.Helper()
	nodes, err := Nodes("", "")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Driver == driver && n.Type == kind })
	if i < 0 {
		t.Fatalf("no %v node of %s among %+v", kind, driver, nodes)
	}
	return nodes[i]
}

func device(t *testing.T, driver string, kind NodeType) *Device {
	t.Helper()
	d, err := Open(node(t, driver, kind).Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func eachDriver(t *testing.T, run func(t *testing.T, driver string)) {
	testenv.VM(t)
	for _, d := range drivers {
		t.Run(d, func(t *testing.T) { run(t, d) })
	}
}

func TestVMNodes(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		for _, kind := range []NodeType{Primary, Render} {
			n := node(t, driver, kind)
			var st unix.Stat_t
			if err := unix.Stat(n.Path, &st); err != nil {
				t.Fatal(err)
			}
			if int(unix.Major(st.Rdev)) != n.Major || int(unix.Minor(st.Rdev)) != n.Minor {
				t.Errorf("%+v: the node's device number is another one", n)
			}
			_, onPCI := n.PCI()
			if want := driver == "virtio_gpu"; onPCI != want {
				t.Errorf("%s on PCI: %v, want %v", n.Name, onPCI, want)
			}
		}
	})
}

func TestVMVersionAndCaps(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		for _, kind := range []NodeType{Primary, Render} {
			d := device(t, driver, kind)
			v, err := d.Version()
			if err != nil || v.Name != driver || v.Desc == "" {
				t.Errorf("Version = %+v, %v; want name %s", v, err, driver)
			}
			if n, err := d.Cap(CapPrime); err != nil || n != PrimeImport|PrimeExport {
				t.Errorf("CapPrime = %#x, %v", n, err)
			}
			_, err = d.Cap(0xffff)
			if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
				t.Errorf("unknown capability: %v", err)
			}
		}
		n, err := device(t, driver, Primary).Cap(CapDumbBuffer)
		if driver == "vgem" { // no display: the kernel does not say, though it has dumb buffers
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("CapDumbBuffer = %d, %v; want EOPNOTSUPP", n, err)
			}
		} else if err != nil || n != 1 {
			t.Errorf("CapDumbBuffer = %d, %v", n, err)
		}
	})
}

// Open of a primary node does not leave the process DRM master.
func TestVMNoMaster(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		d := device(t, driver, Primary)
		err := d.Do(func(raw int) error { return dropMaster(kernel, raw) })
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("DROP_MASTER after Open: %v; EINVAL says that we are not master", err)
		}
	})
}

// The same bytes through the DRM node's mmap and through the dma-buf's.
func TestVMDumbPrime(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		d := device(t, driver, Primary)
		dumb, err := d.CreateDumbSize(1<<20 + 1)
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(1<<20 + os.Getpagesize()); dumb.Size != want {
			t.Errorf("1 MiB and 1 byte became %d bytes, want %d", dumb.Size, want)
		}
		off, err := d.MapDumb(dumb.Handle)
		if err != nil {
			t.Fatal(err)
		}
		view, err := d.Mmap(off, dumb.Size)
		if err != nil {
			t.Fatal(err)
		}
		defer view.Close()
		want := make([]byte, dumb.Size)
		rand.Read(want)
		copy(view.Bytes(), want)

		buf, err := d.PrimeHandleToFD(dumb.Handle, ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer buf.Close()
		if buf.Size() != dumb.Size {
			t.Errorf("the dma-buf has %d bytes, the dumb buffer %d", buf.Size(), dumb.Size)
		}
		again, err := d.PrimeFDToHandle(buf)
		if err != nil || again != dumb.Handle {
			t.Errorf("import of our own export: handle %d, %v; want %d", again, err, dumb.Handle)
		}
		// The memory outlives handle, node mapping and device.
		if err := errors.Join(d.DestroyDumb(dumb.Handle), view.Close(), d.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
		m, err := buf.Map(0, buf.Size(), dmabuf.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		got := make([]byte, buf.Size())
		if _, err := m.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the dma-buf shows other bytes (%v)", err)
		}
	})
}

func TestVMReadOnlyExport(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		d := device(t, driver, Primary)
		dumb, err := d.CreateDumb(64, 64, 32)
		if err != nil {
			t.Fatal(err)
		}
		buf, err := d.PrimeHandleToFD(dumb.Handle, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer buf.Close()
		info, err := buf.Info()
		if err != nil || info.Writable() {
			t.Errorf("Info = %+v, %v; want read-only", info, err)
		}
		_, err = buf.Map(0, 1, dmabuf.Write)
		if !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), "DRM_RDWR") {
			t.Errorf("writable mapping of a read-only export: %v", err)
		}
		if err := d.GEMClose(dumb.Handle); err != nil {
			t.Error(err)
		}
	})
}

// Importing between devices, and each refusal with its errno and remedy.
func TestVMRefusals(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		d, r := device(t, driver, Primary), device(t, driver, Render)
		_, renderErr := r.CreateDumbSize(1)
		_, primeErr := d.PrimeHandleToFD(4711, ReadWrite)
		_, mapErr := d.MapDumb(4711)
		_, zeroErr := d.CreateDumb(0, 0, 0)
		_, bigErr := d.CreateDumbSize(MaxDumb() + 1)
		_, hugeErr := d.CreateDumb(1<<31, 1<<31, 32)
		_, mmapErr := d.Mmap(1<<40, 4096)
		_, rangeErr := d.Mmap(0, -1)
		for name, c := range map[string]struct {
			err   error
			want  error
			words string
		}{
			"dumb on a render node": {renderErr, unix.EACCES, "primary node"},
			"export nothing":        {primeErr, unix.ENOENT, "handle 4711"},
			"map nothing":           {mapErr, unix.ENOENT, "handle 4711"},
			"no pixels":             {zeroErr, unix.EINVAL, "0 x 0 pixels"},
			"over 32 bits":          {bigErr, failure.ErrRange, "use 1 to"},
			"overflow":              {hugeErr, unix.EINVAL, "CREATE_DUMB"},
			"mmap nowhere":          {mmapErr, unix.EINVAL, "mmap"},
			"mmap negative":         {rangeErr, failure.ErrRange, "mmap"},
			"close nothing":         {d.GEMClose(4711), unix.EINVAL, "handle 4711"},
			"destroy nothing":       {d.DestroyDumb(4711), unix.EINVAL, "handle 4711"},
		} {
			if !errors.Is(c.err, c.want) || !strings.Contains(c.err.Error(), c.words) {
				t.Errorf("%s: %v; want %v with %q", name, c.err, c.want, c.words)
			}
		}
	})
}

func TestVMImportForeign(t *testing.T) {
	testenv.VM(t)
	from, to := device(t, "virtio_gpu", Primary), device(t, "vgem", Render)
	dumb, err := from.CreateDumb(1024, 4, 32)
	if err != nil {
		t.Fatal(err)
	}
	buf, err := from.PrimeHandleToFD(dumb.Handle, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := to.PrimeFDToHandle(buf)
	if err != nil {
		t.Fatal(err)
	}
	list, err := dmabuf.KernelBufs("")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(k dmabuf.KernelBuf) bool { return k.Inode == buf.Inode() })
	if i < 0 || len(list[i].Attached) != 1 || !strings.Contains(list[i].Attached[0], "vgem") {
		t.Errorf("bufinfo %+v; want vgem attached to inode %d", list, buf.Inode())
	}
	if err := errors.Join(to.GEMClose(handle), buf.Close()); err != nil {
		t.Error(err)
	}
	if _, err := to.PrimeFDToHandle(buf); !errors.Is(err, os.ErrClosed) {
		t.Errorf("import of a closed Buf: %v", err)
	}
}

func TestVMOpenRefusals(t *testing.T) {
	testenv.VM(t)
	if _, err := Open("/dev/dri/card99"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "modprobe") {
		t.Errorf("missing node: %v", err)
	}
	if _, err := Open("/dev/null"); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "no DRM node") {
		t.Errorf("/dev/null: %v", err)
	}
	path := node(t, "vgem", Primary).Path
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			done <- e
			return
		}
		_, err := Open(path)
		done <- err
	}()
	if err := <-done; !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "run as root") {
		t.Errorf("as nobody: %v", err)
	}
}
