// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/fd"
	"github.com/gpurdma/gpurdma/internal/ioctl/ioctltest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// openKinds opens one descriptor of each kind that people pass by mistake.
func openKinds(t *testing.T) map[string]int {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fds := map[string]int{}
	add := func(name string, raw int, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(name, err)
		}
		fds[name] = raw
		t.Cleanup(func() { unix.Close(raw) })
	}
	open := func(name, path string) {
		raw, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		add(name, raw, err)
	}
	open("file", file)
	open("directory", dir)
	open("device node", "/dev/null")
	raw, err := unix.MemfdCreate("weights", unix.MFD_CLOEXEC)
	add("memfd", raw, err)
	raw, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
	add("eventfd", raw, err)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	add("socket", pair[0], err)
	unix.Close(pair[1])
	var pipe [2]int
	err = unix.Pipe2(pipe[:], unix.O_CLOEXEC)
	add("pipe", pipe[0], err)
	unix.Close(pipe[1])
	return fds
}

func TestNewRefusesOtherDescriptors(t *testing.T) {
	words := map[string]string{
		"file": "file system of type", "directory": "file system of type", "device node": "the device node /dev/null",
		"memfd": "a memfd (/memfd:weights)", "eventfd": "anon_inode:[eventfd]", "socket": "a socket", "pipe": "a pipe",
	}
	for name, raw := range openKinds(t) {
		for op, f := range map[string]func(int) (*Buf, error){"New": New, "Import": Import} {
			_, err := f(raw)
			if !errors.Is(err, ErrNotDMABuf) || !strings.Contains(err.Error(), words[name]) {
				t.Errorf("%s of a %s: %v; want ErrNotDMABuf with %q", op, name, err, words[name])
			}
			var e *failure.Error
			if !errors.As(err, &e) || e.Device != "fd "+strconv.Itoa(raw) || e.Remedy == "" {
				t.Errorf("%s of a %s: device %q, remedy %q", op, name, e.Device, e.Remedy)
			}
			if _, err := unix.FcntlInt(uintptr(raw), unix.F_GETFD, 0); err != nil {
				t.Errorf("%s of a %s closed it: %v", op, name, err)
			}
		}
	}
}

func TestNewRefusesClosedDescriptors(t *testing.T) {
	for _, raw := range []int{-1, 1 << 20} {
		for op, f := range map[string]func(int) (*Buf, error){"New": New, "Import": Import} {
			if _, err := f(raw); !errors.Is(err, unix.EBADF) {
				t.Errorf("%s(%d): %v, want EBADF", op, raw, err)
			}
		}
	}
}

// fakeBuf is a Buf on a memfd whose ioctls are played from a script: for error
// paths, and for what has nothing to do with the kernel.
func fakeBuf(t *testing.T, size int64, steps ...ioctltest.Step) *Buf {
	t.Helper()
	raw, err := unix.MemfdCreate("fake", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(raw, size); err != nil {
		t.Fatal(err)
	}
	f, err := fd.New(raw)
	if err != nil {
		t.Fatal(err)
	}
	script := ioctltest.NewScript(steps...)
	t.Cleanup(func() {
		f.Close()
		if err := script.Err(); err != nil {
			t.Error(err)
		}
	})
	return &Buf{fd: f, t: script, size: size, inode: 7}
}

func TestIoctlErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		step  ioctltest.Step
		call  func(*Buf) error
		want  error
		words []string
	}{
		{"name refused", ioctltest.Step{Req: reqSetName, Errno: unix.EBUSY}, func(b *Buf) error { return b.SetName("x") }, unix.EBUSY, []string{"DMA_BUF_SET_NAME", "EBUSY"}},
		{"old kernel", ioctltest.Step{Req: reqSetName, Errno: unix.ENOTTY}, func(b *Buf) error { return b.SetName("x") }, errors.ErrUnsupported, []string{"ENOTTY"}},
		{"begin", ioctltest.Step{Req: reqSync, Errno: unix.EIO}, func(b *Buf) error { return b.BeginAccess(Read) }, unix.EIO, []string{"DMA_BUF_IOCTL_SYNC start"}},
		{"end", ioctltest.Step{Req: reqSync, Errno: unix.EIO}, func(b *Buf) error { return b.EndAccess(Read) }, unix.EIO, []string{"DMA_BUF_IOCTL_SYNC end"}},
		{"export, old kernel", ioctltest.Step{Req: reqExportSyncFile, Errno: unix.ENOTTY}, func(b *Buf) error { _, err := b.ExportSyncFile(Read); return err }, errors.ErrUnsupported, []string{"Linux 6.0"}},
		{"export, no memory", ioctltest.Step{Req: reqExportSyncFile, Errno: unix.ENOMEM}, func(b *Buf) error { _, err := b.ExportSyncFile(Read); return err }, unix.ENOMEM, nil},
		{"524 from a driver", ioctltest.Step{Req: reqSync, Errno: 524}, func(b *Buf) error { return b.BeginAccess(Write) }, errors.ErrUnsupported, []string{"ENOTSUPP (524"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.call(fakeBuf(t, 1, c.step))
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			contains(t, err, c.words...)
		})
	}
}

// The kernel gets the request numbers and arguments of its headers.
func TestIoctlArguments(t *testing.T) {
	sync := func(want uint64) ioctltest.Step {
		return ioctltest.Step{Req: reqSync, Fill: func(arg unsafe.Pointer) {
			if got := (*abiSync)(arg).Flags; got != want {
				t.Errorf("flags %#x, want %#x", got, want)
			}
		}}
	}
	b := fakeBuf(t, 1, sync(syncRead|syncStart), sync(syncWrite|syncEnd), sync(syncRead|syncWrite|syncEnd),
		ioctltest.Step{Req: reqSetName, Fill: func(arg unsafe.Pointer) {
			if got := unix.BytePtrToString((*byte)(arg)); got != "abc" {
				t.Errorf("name %q", got)
			}
		}})
	if err := errors.Join(b.BeginAccess(Read), b.EndAccess(Write), b.EndAccess(ReadWrite), b.SetName("abc")); err != nil {
		t.Error(err)
	}
	contains(t, b.SetName("a\x00b"), "none of them zero")
}

func TestMappingBrackets(t *testing.T) {
	step := func(flags uint64, e unix.Errno) ioctltest.Step {
		return ioctltest.Step{Req: reqSync, Errno: e, Fill: func(arg unsafe.Pointer) {
			if got := (*abiSync)(arg).Flags; got != flags {
				t.Errorf("flags %#x, want %#x", got, flags)
			}
		}}
	}
	b := fakeBuf(t, 3*int64(os.Getpagesize()),
		step(syncWrite, 0), step(syncWrite|syncEnd, 0), // WriteAt
		step(syncRead, 0), step(syncRead|syncEnd, 0), // ReadAt
		step(syncRead, unix.EIO),                              // begin fails: no end
		step(syncWrite, 0), step(syncWrite|syncEnd, unix.EIO), // end fails
	)
	off := int64(os.Getpagesize() + 5)
	m, err := b.Map(off, 100, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Len() != 100 || len(m.Bytes()) != 100 || cap(m.Bytes()) != 100 {
		t.Errorf("Len %d, Bytes %d of %d", m.Len(), len(m.Bytes()), cap(m.Bytes()))
	}
	if n, err := m.WriteAt([]byte("hello"), 95); n != 5 || err != nil {
		t.Error(n, err)
	}
	got := make([]byte, 10)
	if n, err := m.ReadAt(got, 95); n != 5 || !errors.Is(err, io.EOF) || string(got[:n]) != "hello" {
		t.Errorf("%q, %v", got[:n], err)
	}
	if n, err := m.ReadAt(got, 0); n != 0 || !errors.Is(err, unix.EIO) {
		t.Errorf("begin refused: %d, %v", n, err)
	}
	if n, err := m.WriteAt(got, 0); n != 0 || !errors.Is(err, unix.EIO) {
		t.Errorf("end refused: %d, %v", n, err)
	}
	// Nothing of this reaches the kernel.
	for _, c := range []struct {
		n, off int64
		want   error
	}{{1, 100, failure.ErrRange}, {1, -1, failure.ErrRange}, {101, 0, failure.ErrRange}, {6, 95, failure.ErrRange}, {1, 1 << 62, failure.ErrRange}, {0, 100, nil}} {
		if _, err := m.WriteAt(make([]byte, c.n), c.off); !errors.Is(err, c.want) {
			t.Errorf("WriteAt(%d bytes, %d): %v, want %v", c.n, c.off, err, c.want)
		}
	}
	if n, err := m.ReadAt(got, 100); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadAt the end: %d, %v", n, err)
	}
	if n, err := m.ReadAt(nil, 100); n != 0 || err != nil {
		t.Errorf("ReadAt nothing at the end: %d, %v", n, err)
	}
	if _, err := m.ReadAt(got, -1); !errors.Is(err, failure.ErrRange) {
		t.Errorf("ReadAt(-1): %v", err)
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Error(err)
	}
}

// A page that is gone is an error, not the end of the process.
func TestMappingFault(t *testing.T) {
	page := int64(os.Getpagesize())
	b := fakeBuf(t, 2*page,
		ioctltest.Step{Req: reqSync}, ioctltest.Step{Req: reqSync},
		ioctltest.Step{Req: reqSync}, ioctltest.Step{Req: reqSync})
	m, err := b.Map(0, 2*page, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := b.Do(func(fd int) error { return unix.Ftruncate(fd, page) }); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func([]byte, int64) (int, error){"read": m.ReadAt, "write": m.WriteAt} {
		if _, err := do(make([]byte, 2*page), 0); !errors.Is(err, unix.EFAULT) || !strings.Contains(err.Error(), "gone") {
			t.Errorf("%s over the missing page: %v, want EFAULT", name, err)
		}
	}
}

func TestMapErrors(t *testing.T) {
	for e, words := range map[unix.Errno]string{
		unix.EACCES: "DRM_RDWR", unix.ENODEV: "no mmap", unix.ENOTTY: "no mmap", unix.ENOMEM: "RLIMIT_AS", unix.EINVAL: "EINVAL",
	} {
		contains(t, mapError("fd 7", 1, 2, ReadWrite, e), words, "offset 0x1, length 0x2, read-write")
	}
	b := fakeBuf(t, 1)
	contains(t, func() error { _, err := b.Map(0, 1, 8); return err }(), "Access(8)")
}

func TestPoll(t *testing.T) {
	raw, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fd.New(raw)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	if err := poll(ctx, f, unix.POLLOUT); err != nil {
		t.Errorf("writable eventfd: %v", err)
	}
	go func() { time.Sleep(time.Millisecond); cancel() }()
	if err := poll(ctx, f, unix.POLLIN); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := poll(ctx, f, unix.POLLOUT); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	go func() { _, _ = unix.Write(raw, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }()
	if err := poll(t.Context(), f, unix.POLLIN); err != nil {
		t.Errorf("readable eventfd: %v", err)
	}
	// Closing neither waits for a poll nor ends it.
	var drain [8]byte
	if _, err := unix.Read(raw, drain[:]); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- poll(ctx, f, unix.POLLIN) }()
	f.Close()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) && !errors.Is(err, os.ErrClosed) {
		t.Errorf("poll of a descriptor closed meanwhile: %v", err)
	}
	if err := poll(t.Context(), f, unix.POLLIN); !errors.Is(err, os.ErrClosed) {
		t.Errorf("poll after Close: %v", err)
	}
}

func TestSyncFileErrors(t *testing.T) {
	for name, raw := range openKinds(t) {
		if _, err := NewSyncFile(raw); err == nil {
			t.Errorf("a %s passed for a sync file", name)
		}
	}
	_, err := NewSyncFile(-1)
	if !errors.Is(err, unix.EBADF) {
		t.Errorf("NewSyncFile(-1): %v", err)
	}
	fence := &SyncFile{fd: fakeBuf(t, 1).fd, t: ioctltest.NewScript(
		ioctltest.Step{Req: reqFileInfo, Fill: func(arg unsafe.Pointer) { (*abiSyncFileInfo)(arg).Status = -5 }},
		ioctltest.Step{Req: reqFileInfo},
	)}
	if done, err := fence.Signaled(); !done || !errors.Is(err, unix.EIO) {
		t.Errorf("failed fence: %v, %v", done, err)
	}
	if done, err := fence.Signaled(); done || err != nil {
		t.Errorf("active fence: %v, %v", done, err)
	}
	b := fakeBuf(t, 1)
	if err := b.ImportSyncFile(Read, nil); !errors.Is(err, unix.EBADF) {
		t.Errorf("import of nothing: %v", err)
	}
	if err := b.ImportSyncFile(0, fence); !errors.Is(err, failure.ErrRange) {
		t.Errorf("import as nothing: %v", err)
	}
	if err := b.Wait(t.Context(), 0); !errors.Is(err, failure.ErrRange) {
		t.Errorf("wait for nothing: %v", err)
	}
}

func TestReceiveRefusesOtherDescriptors(t *testing.T) {
	left, right := socketPair(t)
	before := testenv.Descriptors(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := left.WriteMsgUnix([]byte("x"), unix.UnixRights(int(null.Fd()), int(null.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	null.Close()
	_, bufs, err := Receive(right, make([]byte, 8), 8)
	if !errors.Is(err, ErrNotDMABuf) || bufs != nil {
		t.Errorf("Receive of /dev/null: %v, %v", bufs, err)
	}
	contains(t, err, "descriptor 1 of 2", "/dev/null")
	if now := testenv.Descriptors(t); now != before {
		t.Errorf("%d descriptors before, %d after", before, now)
	}
	// A message without descriptors is a message.
	if err := Send(left, []byte("plain")); err != nil {
		t.Fatal(err)
	}
	msg := make([]byte, 8)
	if n, bufs, err := Receive(right, msg, 0); err != nil || len(bufs) != 0 || !bytes.Equal(msg[:n], []byte("plain")) {
		t.Errorf("Receive: %q, %v, %v", msg[:n], bufs, err)
	}
	for _, max := range []int{-1, 254} {
		if _, _, err := Receive(right, msg, max); !errors.Is(err, failure.ErrRange) {
			t.Errorf("Receive max %d: %v", max, err)
		}
	}
	if err := Send(left, nil); !errors.Is(err, failure.ErrRange) {
		t.Errorf("Send of no byte: %v", err)
	}
	if err := Send(left, msg, make([]*Buf, 254)...); !errors.Is(err, failure.ErrRange) {
		t.Errorf("Send of 254: %v", err)
	}
	closed := fakeBuf(t, 1)
	closed.Close()
	if err := Send(left, msg, closed); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Send of a closed Buf: %v", err)
	}
	left.Close()
	if _, _, err := Receive(right, msg, 1); err == nil {
		t.Error("Receive from a closed peer succeeded")
	}
	if err := Send(left, msg); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Send on a closed socket: %v", err)
	}
}

// A Buf that is sent twice and closed meanwhile must not block a caller for ever.
func TestSendTwiceWhileClosing(t *testing.T) {
	for range 200 {
		b := fakeBuf(t, 1)
		go b.Close()
		err := withRaw([]*Buf{b, b, b}, nil, func(raw []int) error {
			if raw[0] != raw[1] || raw[0] != raw[2] {
				t.Errorf("descriptors %v", raw)
			}
			return nil
		})
		if err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}
}
