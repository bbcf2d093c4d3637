// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestVMIdentity(t *testing.T) {
	eachSource(t, func(t *testing.T, s source) {
		b := s.buf(t, 1<<20)
		if b.Size() != 1<<20 {
			t.Errorf("Size = %d, want 1 MiB", b.Size())
		}
		info, err := b.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Exporter != s.exporter || info.Size != b.Size() || info.Inode != b.Inode() || info.Count < 1 || !info.Writable() {
			t.Errorf("Info = %+v, want exporter %s, size %d, inode %d, writable", info, s.exporter, b.Size(), b.Inode())
		}
		other := s.buf(t, 1<<20)
		if other.Inode() == b.Inode() {
			t.Error("two buffers share an inode")
		}
		borrowed := -1
		_ = b.Do(func(fd int) error { borrowed = fd; return nil })
		imported, err := Import(borrowed)
		if err != nil {
			t.Fatal(err)
		}
		if imported.Inode() != b.Inode() || imported.Size() != b.Size() {
			t.Error("the imported buffer is another one")
		}
		if err := imported.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Info(); err != nil {
			t.Errorf("closing the import closed the original: %v", err)
		}
	})
}

func TestVMNames(t *testing.T) {
	eachSource(t, func(t *testing.T, s source) {
		b := s.buf(t, 1<<16)
		for _, name := range []string{"weights", "a b:c\tsize:\t1", "two\nlines", "slash/ed", string(bytes.Repeat([]byte("x"), 31)), ""} {
			if err := b.SetName(name); err != nil {
				t.Errorf("SetName(%q): %v", name, err)
				continue
			}
			info, err := b.Info()
			if err != nil || info.Name != name || info.Size != b.Size() {
				t.Errorf("after SetName(%q): %+v, %v", name, info, err)
			}
		}
		contains(t, b.SetName(string(bytes.Repeat([]byte("x"), 32))), "at most 31 bytes", "EINVAL")
	})
}

func TestVMMapping(t *testing.T) {
	eachSource(t, func(t *testing.T, s source) {
		b := s.buf(t, 1<<18)
		zero := make([]byte, b.Size())
		whole, err := b.Map(0, b.Size(), ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer whole.Close()
		got := make([]byte, b.Size())
		if _, err := whole.ReadAt(got, 0); err != nil || !bytes.Equal(got, zero) {
			t.Fatalf("new memory is not zero (%v)", err)
		}
		want := make([]byte, b.Size())
		rand.Read(want)
		if _, err := whole.WriteAt(want, 0); err != nil {
			t.Fatal(err)
		}
		// A second mapping, past the first page and unaligned at both ends, sees
		// the same bytes, and it outlives the descriptor.
		off, n := int64(3*os.Getpagesize()-3), int64(os.Getpagesize()+7)
		part, err := b.Map(off, n, Read)
		if err != nil {
			t.Fatal(err)
		}
		defer part.Close()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(part.Bytes(), want[off:off+n]) {
			t.Error("the mapping shows other bytes")
		}
		small := make([]byte, 5)
		if k, err := part.ReadAt(small, n-5); k != 5 || err != nil || !bytes.Equal(small, want[off+n-5:off+n]) {
			t.Errorf("ReadAt the end: %d, %v", k, err)
		}
		if k, err := part.ReadAt(small, n-2); k != 2 || !errors.Is(err, io.EOF) {
			t.Errorf("ReadAt across the end: %d, %v; want 2, EOF", k, err)
		}
		if _, err := part.WriteAt(small, 0); !errors.Is(err, unix.EACCES) {
			t.Errorf("WriteAt of a read mapping: %v, want EACCES", err)
		}
	})
}

func TestVMMapRefuses(t *testing.T) {
	eachSource(t, func(t *testing.T, s source) {
		b := s.buf(t, 1<<16)
		for _, r := range [][2]int64{{0, 0}, {-1, 1}, {0, -1}, {0, b.Size() + 1}, {b.Size(), 1}, {1, b.Size()}, {1 << 62, 1 << 62}} {
			if m, err := b.Map(r[0], r[1], Read); !errors.Is(err, failure.ErrRange) {
				t.Errorf("Map(%#x, %#x) = %v, %v; want failure.ErrRange", r[0], r[1], m, err)
			}
		}
	})
}

func TestVMAccess(t *testing.T) {
	eachSource(t, func(t *testing.T, s source) {
		b := s.buf(t, 1<<16)
		for _, a := range []Access{Read, Write, ReadWrite} {
			if err := b.BeginAccess(a); err != nil {
				t.Errorf("BeginAccess(%v): %v", a, err)
			}
			if err := b.EndAccess(a); err != nil {
				t.Errorf("EndAccess(%v): %v", a, err)
			}
		}
		contains(t, b.BeginAccess(0), "Access(0)")
	})
}

// A buffer that no device has touched has no fences: waits return, and the
// exported sync file is signalled. Its import is accepted.
func TestVMFences(t *testing.T) {
	eachSource(t, func(t *testing.T, s source) {
		b := s.buf(t, 1<<16)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, a := range []Access{Read, Write, ReadWrite} {
			if err := b.Wait(ctx, a); err != nil {
				t.Errorf("Wait(%v): %v", a, err)
			}
			f, err := b.ExportSyncFile(a)
			if err != nil {
				t.Fatalf("ExportSyncFile(%v): %v", a, err)
			}
			if done, err := f.Signaled(); !done || err != nil {
				t.Errorf("Signaled = %v, %v", done, err)
			}
			if err := f.Wait(ctx); err != nil {
				t.Errorf("SyncFile.Wait: %v", err)
			}
			if err := b.ImportSyncFile(a, f); err != nil {
				t.Errorf("ImportSyncFile(%v): %v", a, err)
			}
			raw := -1
			_ = f.Do(func(fd int) error { raw, _ = unix.Dup(fd); return nil })
			again, err := NewSyncFile(raw)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := errors.Join(f.Close(), again.Close()); err != nil {
					t.Error(err)
				}
			}
			if err := b.ImportSyncFile(a, f); !errors.Is(err, os.ErrClosed) {
				t.Errorf("import of a closed sync file: %v", err)
			}
		}
	})
}

func TestVMSendReceive(t *testing.T) {
	eachSource(t, func(t *testing.T, s source) {
		left, right := socketPair(t)
		bufs := []*Buf{s.buf(t, 1<<16), s.buf(t, 1<<17)}
		if err := Send(left, []byte("two"), bufs...); err != nil {
			t.Fatal(err)
		}
		msg := make([]byte, 16)
		n, got, err := Receive(right, msg, 4)
		if err != nil || string(msg[:n]) != "two" || len(got) != 2 {
			t.Fatalf("Receive: %q, %d bufs, %v", msg[:n], len(got), err)
		}
		for i, g := range got {
			if g.Inode() != bufs[i].Inode() || g.Size() != bufs[i].Size() {
				t.Errorf("buffer %d is another one", i)
			}
			g.Close()
		}
		fds, _ := live(t)
		if err := Send(left, []byte("three"), bufs[0], bufs[1], bufs[0]); err != nil {
			t.Fatal(err)
		}
		if _, got, err := Receive(right, msg, 1); !errors.Is(err, failure.ErrLimit) || got != nil {
			t.Errorf("Receive of 3 with max 1: %d bufs, %v; want failure.ErrLimit", len(got), err)
		}
		if now, _ := live(t); now != fds {
			t.Errorf("%d descriptors before the refused message, %d after", fds, now)
		}
	})
}

func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	raw, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]*net.UnixConn, 2)
	for i, r := range raw {
		f := os.NewFile(uintptr(r), "socketpair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return conns[0], conns[1]
}

func TestVMInventory(t *testing.T) {
	eachSource(t, func(t *testing.T, s source) {
		b := s.buf(t, 1<<20)
		if err := b.SetName("inventory"); err != nil {
			t.Fatal(err)
		}
		m, err := b.Map(0, b.Size(), ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		find := func() *Usage {
			t.Helper()
			usage, unreadable, err := Inventory("", os.Getpid())
			if err != nil || len(unreadable) > 0 {
				t.Fatal(err, unreadable)
			}
			i := slices.IndexFunc(usage, func(u Usage) bool { return u.Inode == b.Inode() })
			if i < 0 {
				t.Fatalf("inode %d is not in %+v", b.Inode(), usage)
			}
			return &usage[i]
		}
		u := find()
		if u.Exporter != s.exporter || u.Name != "inventory" || u.Size != 1<<20 || len(u.Holders) != 1 {
			t.Fatalf("usage %+v", u)
		}
		h := u.Holders[0]
		if h.PID != os.Getpid() || len(h.FDs) != 2 || len(h.Maps) != 1 || h.Comm == "" { // ours, and the mapping's duplicate
			t.Errorf("holder %+v", h)
		}
		if h.Maps[0].End-h.Maps[0].Start != 1<<20 || h.Maps[0].Prot != "rw-s" {
			t.Errorf("mapping %+v", h.Maps[0])
		}
		all, _, err := Inventory("", 0)
		if err != nil || !slices.ContainsFunc(all, func(u Usage) bool { return u.Inode == b.Inode() }) {
			t.Errorf("the whole system's inventory lacks it: %v", err)
		}
		list, err := KernelBufs("")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list, func(k KernelBuf) bool { return k.Inode == b.Inode() })
		if i < 0 || list[i].Name != "inventory" || list[i].Exporter != s.exporter || list[i].Size != 1<<20 || list[i].Count < 2 {
			t.Errorf("bufinfo: %+v", list)
		}
	})
}

// Without privilege other users' processes are unknown, and said to be.
func TestVMInventoryUnprivileged(t *testing.T) {
	testenv.VM(t)
	asNobody(t, func() {
		_, unreadable, err := Inventory("", 1)
		if err != nil || len(unreadable) == 0 {
			t.Errorf("Inventory of init as nobody: %v, %v; want unreadable files", unreadable, err)
			return
		}
		if !errors.Is(unreadable[0], fs.ErrPermission) {
			t.Errorf("unreadable: %v, want a permission error", unreadable[0])
		}
		contains(t, unreadable[0], "CAP_SYS_PTRACE")
		_, err = KernelBufs("")
		contains(t, err, "run as root")
	})
}

// Device nodes that this user may not open: told so, with the errno and what to
// change. A DRM node stands in where a kernel has neither udmabuf nor heaps.
func TestVMNoPermission(t *testing.T) {
	nodes := map[string]func() string{
		"drm:vgem":       func() string { return cardOf(t, "vgem") },
		"drm:virtio_gpu": func() string { return cardOf(t, "virtio") },
		"udmabuf":        func() string { return "/dev/udmabuf" },
		"heap:system":    func() string { return "/dev/dma_heap/system" },
	}
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		node := nodes[x.Spec]()
		fds, bufs := live(t)
		m, err := NewMemfd("test", int64(os.Getpagesize()))
		if err != nil {
			t.Fatal(err)
		}
		asNobody(t, func() {
			err := m.Do(func(fd int) error {
				_, err := CreateUDMABuf([]Range{{FD: fd, Size: m.Size()}}, UDMABufDevice(node))
				return err
			})
			_, heapErr := OpenHeap(node)
			for _, err := range []error{err, heapErr} {
				if !errors.Is(err, fs.ErrPermission) {
					t.Errorf("%s as nobody: %v, want a permission error", node, err)
				}
				contains(t, err, node, "EACCES", "run as root")
			}
		})
		m.Close()
		if f, b := live(t); f != fds || b != bufs {
			t.Errorf("%d descriptors and %d dma-bufs before, %d and %d after", fds, bufs, f, b)
		}
	})
}

// Hundreds of lives of a buffer leave nothing behind.
//
//testbed:kernel 6.12
func TestVMNoGrowth(t *testing.T) {
	eachSource(t, func(t *testing.T, s source) {
		fds, bufs := live(t)
		for i := range 300 {
			b, err := s.make(t, 1<<16)
			if err != nil {
				t.Fatal(err)
			}
			m, err := b.Map(0, b.Size(), ReadWrite)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.WriteAt([]byte{byte(i)}, int64(i)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(b.Close(), m.Close(), b.Close(), m.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if f, b := live(t); f != fds || b != bufs {
			t.Errorf("%d descriptors and %d dma-bufs before, %d and %d after", fds, bufs, f, b)
		}
	})
}

func TestVMClosed(t *testing.T) {
	eachSource(t, func(t *testing.T, s source) {
		b := s.buf(t, 1<<16)
		m, err := b.Map(0, 16, ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
		_, infoErr := b.Info()
		_, dupErr := b.Dup()
		_, mapErr := b.Map(0, 1, Read)
		_, fenceErr := b.ExportSyncFile(Read)
		_, readErr := m.ReadAt(make([]byte, 1), 0)
		_, writeErr := m.WriteAt(make([]byte, 1), 0)
		for name, err := range map[string]error{
			"Info": infoErr, "Dup": dupErr, "Map": mapErr, "ExportSyncFile": fenceErr, "ReadAt": readErr, "WriteAt": writeErr,
			"SetName": b.SetName("x"), "BeginAccess": b.BeginAccess(Read), "EndAccess": b.EndAccess(Read),
			"Wait": b.Wait(t.Context(), Read), "Do": b.Do(func(int) error { return nil }),
		} {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s after Close: %v, want os.ErrClosed", name, err)
			}
		}
		if m.Bytes() != nil || !b.Closed() || b.Size() != 1<<16 {
			t.Error("a closed buffer still shows memory, or forgot its size")
		}
	})
}

// Fixtures of other tests are made from what this kernel really prints.
func TestVMProcFormats(t *testing.T) {
	eachSource(t, func(t *testing.T, s source) {
		b := s.buf(t, 1<<16)
		m, err := b.Map(0, b.Size(), Read)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		raw := -1
		_ = b.Do(func(fd int) error { raw = fd; return nil })
		link, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(raw)))
		if err != nil || !isDMABufPath(link) {
			t.Errorf("fd link %q, %v", link, err)
		}
		info, err := os.ReadFile(filepath.Join("/proc/self/fdinfo", strconv.Itoa(raw)))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("fd %s\n%s", link, info)
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(maps) {
			if bytes.Contains(line, []byte("dmabuf")) {
				t.Logf("maps %s", line)
			}
		}
		bufinfo, err := os.ReadFile("/sys/kernel/debug/dma_buf/bufinfo")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("bufinfo\n%s", bufinfo)
	})
}
