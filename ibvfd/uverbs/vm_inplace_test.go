// SPDX-License-Identifier: Apache-2.0

package uverbs

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
)

// udmabuf returns a buffer of some bytes, and its open descriptor.
func udmabuf(t *testing.T, size int64) (buf *dmabuf.Buf, fd int32) {
	t.Helper()
	a, err := gpualloc.Open("udmabuf", gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := a.Alloc(t.Context(), size, gpualloc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	buf = b.Segments()[0].Buf
	raw, err := buf.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		buf.Release()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return buf, int32(raw)
}

func ptr[T any](v T) *T { return &v }

// After each refusal of the method the MR is as it was, and no other buffer is attached.
//
//testbed:kernel 7.3 7.2
func TestVMInPlaceRefusals(t *testing.T) {
	f, pd := openNode(t)
	if os.Getenv("GPURDMA_REREG") != "1" {
		t.Skip("the RDMA core of this machine cannot re-register a dma-buf")
	}
	const rights = AccessLocalWrite | AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic
	_, one := udmabuf(t, 1<<16)
	buf, two := udmabuf(t, 1<<16)
	mr, err := f.RegDMABufMR(DMABufMR{PD: pd, FD: one, Access: rights, Length: 1 << 16, IOVA: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.DestroyMR(mr.Handle); err != nil {
			t.Error(err)
		}
	}()
	before, err := f.QueryMR(mr.Handle)
	if err != nil {
		t.Fatal(err)
	}
	memory := func(off, length, iova uint64) *DMABufRange {
		return &DMABufRange{FD: two, Offset: off, Length: length, IOVA: iova}
	}
	all, none, window, unknown := uint32(rights), uint32(0), uint32(rights|AccessMWBind), uint32(1<<31)
	for _, x := range []struct {
		name   string
		handle uint32
		ask    DMABufRereg
		want   error
	}{
		{"nothing to change", mr.Handle, DMABufRereg{}, unix.EINVAL},
		{"no such MR", 12345, DMABufRereg{Access: &all}, unix.ENOENT},
		{"no such PD", mr.Handle, DMABufRereg{PD: ptr(uint32(12345))}, unix.ENOENT},
		{"a PD in the place of the MR", pd, DMABufRereg{Access: &all}, unix.EINVAL},
		{"no descriptor", mr.Handle, DMABufRereg{Memory: &DMABufRange{FD: -1, Length: 4096}}, unix.EBADF},
		{"not a dma-buf", mr.Handle, DMABufRereg{Memory: &DMABufRange{FD: 0, Length: 4096}}, unix.EINVAL},
		{"another place in the page", mr.Handle, DMABufRereg{Memory: memory(8, 4096, 0)}, unix.EINVAL},
		{"no bytes", mr.Handle, DMABufRereg{Memory: memory(0, 0, 0)}, unix.EINVAL},
		{"behind the end", mr.Handle, DMABufRereg{Memory: memory(1<<16, 1, 0)}, unix.EINVAL},
		{"beyond the end", mr.Handle, DMABufRereg{Memory: memory(0, 1<<16+1, 0)}, unix.EINVAL},
		{"an offset that overflows", mr.Handle, DMABufRereg{Memory: memory(1<<64-4096, 8192, 0)}, unix.EINVAL},
		{"an IOVA that overflows", mr.Handle, DMABufRereg{Memory: memory(0, 8192, 1<<64-4096)}, unix.EINVAL},
		{"a right that dma-bufs do not have", mr.Handle, DMABufRereg{Access: &window}, unix.EINVAL},
		{"a right that there is not", mr.Handle, DMABufRereg{Access: &unknown}, unix.EINVAL},
		{"remote write without local write", mr.Handle, DMABufRereg{Access: ptr(uint32(AccessRemoteWrite))}, unix.EINVAL},
		{"good memory with bad rights", mr.Handle, DMABufRereg{Memory: memory(0, 4096, 0), Access: &window}, unix.EINVAL},
		{"good memory with a PD that is none", mr.Handle, DMABufRereg{Memory: memory(0, 4096, 0), PD: ptr(uint32(12345))}, unix.ENOENT},
		{"no rights", mr.Handle, DMABufRereg{Access: &none}, nil},
		{"rights that its memory was imported for", mr.Handle, DMABufRereg{Access: &all}, nil},
		{"its own PD", mr.Handle, DMABufRereg{PD: &pd}, nil},
	} {
		if err := f.ReregDMABufMR(x.handle, x.ask); err != x.want && !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
		if now, err := f.QueryMR(mr.Handle); err != nil || now != before {
			t.Errorf("%s: %+v, %v; was %+v", x.name, now, err, before)
		}
	}
	list, err := dmabuf.KernelBufs("")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		if b.Inode == buf.Inode() && len(b.Attached) > 0 {
			t.Errorf("%+v is attached after refusals", b)
		}
	}
	if err := f.ReregDMABufMR(mr.Handle, DMABufRereg{Memory: memory(4096, 8192, 1<<41)}); err != nil {
		t.Fatal(err)
	}
	if now, err := f.QueryMR(mr.Handle); err != nil || now != (MRInfo{before.LKey, before.RKey, 8192, 1 << 41}) {
		t.Errorf("%+v, %v", now, err)
	}
}

// The core of a released kernel does not know the method.
//
//testbed:kernel 7.2 6.12
func TestVMNotInPlace(t *testing.T) {
	f, pd := openNode(t)
	_, one := udmabuf(t, 1<<16)
	mr, err := f.RegDMABufMR(DMABufMR{PD: pd, FD: one, Access: AccessLocalWrite, Length: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.ReregDMABufMR(mr.Handle, DMABufRereg{Access: ptr(uint32(0))}); !errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Errorf("%v, want EPROTONOSUPPORT", err)
	}
	if err := f.DestroyMR(mr.Handle); err != nil {
		t.Error(err)
	}
}
