// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/fd"
	"github.com/gpurdma/gpurdma/internal/ioctl"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// source makes dma-bufs of one exporter of the testbed.
type source struct {
	exporter string // exp_name in fdinfo
	make     func(t testing.TB, size int64) (*Buf, error)
}

// makers are the sources' by the exporters' specs.
var makers = map[string]func(t testing.TB, size int64) (*Buf, error){
	"drm:vgem":       func(t testing.TB, size int64) (*Buf, error) { return dumbBuf(t, "vgem", size) },
	"drm:virtio_gpu": func(t testing.TB, size int64) (*Buf, error) { return dumbBuf(t, "virtio", size) },
	"udmabuf": func(t testing.TB, size int64) (*Buf, error) {
		m, err := NewMemfd("test", size)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		var b *Buf
		err = m.Do(func(fd int) (err error) {
			b, err = CreateUDMABuf([]Range{{FD: fd, Size: size}})
			return err
		})
		return b, err
	},
	"heap:system": func(t testing.TB, size int64) (*Buf, error) {
		h, err := OpenHeap("system")
		if err != nil {
			return nil, err
		}
		defer h.Close()
		return h.Alloc(size)
	},
}

// eachSource runs a test on every exporter that this kernel has.
func eachSource(t *testing.T, run func(t *testing.T, s source)) {
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		m, ok := makers[x.Spec]
		if !ok {
			t.Fatalf("nothing here makes a buffer of %s", x.Spec)
		}
		run(t, source{x.Name, m})
	})
}

func (s source) buf(t testing.TB, size int64) *Buf {
	t.Helper()
	b, err := s.make(t, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// cardOf finds the primary node whose device matches: "vgem" is a platform
// device, virtio-gpu a PCI one with a virtio child.
func cardOf(t testing.TB, driver string) string {
	t.Helper()
	cards, err := filepath.Glob("/sys/class/drm/card[0-9]")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cards {
		device, err := filepath.EvalSymlinks(filepath.Join(c, "device"))
		if err != nil {
			t.Fatal(err)
		}
		children, _ := filepath.Glob(filepath.Join(device, "virtio*"))
		if filepath.Base(device) == driver || driver == "virtio" && len(children) > 0 {
			return filepath.Join("/dev/dri", filepath.Base(c))
		}
	}
	t.Fatalf("the testbed has no %s device", driver)
	return ""
}

// dumbBuf exports a DRM dumb buffer with bare ioctls: package drm is above
// this one. The numbers are those of include/uapi/drm/drm.h.
func dumbBuf(t testing.TB, driver string, size int64) (*Buf, error) {
	card, err := fd.Open(cardOf(t, driver), unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	defer card.Close()
	page := int64(os.Getpagesize())
	create := struct {
		height, width, bpp, flags, handle, pitch uint32
		size                                     uint64
	}{height: uint32((size + page - 1) / page), width: uint32(page / 4), bpp: 32}
	prime := struct {
		handle, flags uint32
		fd            int32
	}{flags: unix.O_RDWR | unix.O_CLOEXEC}
	err = card.Do(func(n int) error {
		if err := ioctl.Kernel.Ioctl(n, ioctl.IOWR('d', 0xb2, 32), unsafe.Pointer(&create)); err != nil {
			return err
		}
		prime.handle = create.handle
		return ioctl.Kernel.Ioctl(n, ioctl.IOWR('d', 0x2d, 12), unsafe.Pointer(&prime))
	})
	if err != nil {
		return nil, err
	}
	return New(int(prime.fd))
}

// live counts what must not grow: this process's descriptors and the kernel's
// dma-bufs.
func live(t testing.TB) (fds, bufs int) {
	t.Helper()
	list, err := KernelBufs("")
	if err != nil {
		t.Fatal(err)
	}
	return testenv.Descriptors(t), len(list)
}

// asNobody runs fn on a thread without privilege. Credentials belong to
// threads; this one ends with its goroutine, as it is never unlocked.
func asNobody(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan string)
	go func() {
		why := "the function did not return"
		defer func() { done <- why }()
		why = dropUser()
		if why == "" {
			fn()
		}
	}()
	if why := <-done; why != "" {
		t.Fatal(why)
	}
}

func contains(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q lacks %q", err, w)
		}
	}
}
