// SPDX-License-Identifier: Apache-2.0

package uverbs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

const node = "/dev/infiniband/uverbs0"

func openNode(t *testing.T) (*File, uint32) {
	t.Helper()
	testenv.VM(t)
	f, err := Open(Kernel(), node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	pd, err := f.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.DeallocPD(pd); err != nil {
			t.Error(err)
		}
	})
	return f, pd
}

// RDMA_DRIVER_RXE of include/uapi/rdma/ib_user_ioctl_verbs.h.
func TestVMIdentifiesRXE(t *testing.T) {
	f, _ := openNode(t)
	if id, err := f.Identify(); id != 14 || err != nil {
		t.Errorf("Identify() = %d, %v; want 14", id, err)
	}
}

// A context and PD of our own register a dma-buf, with no library involved.
func TestVMRegister(t *testing.T) {
	f, pd := openNode(t)
	if err := f.ProbeDMABuf(pd); !errors.Is(err, unix.EBADF) {
		t.Errorf("probe on the patched rxe: %v, want EBADF", err)
	}
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		a, err := gpualloc.Open(x.Spec, gpualloc.Env{})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		buf, err := a.Alloc(t.Context(), 1<<16, gpualloc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer buf.Close()
		err = buf.Segments()[0].Buf.Do(func(fd int) error {
			p := DMABufMR{PD: pd, FD: int32(fd), Access: AccessLocalWrite, Offset: 5, Length: 1<<16 - 5, IOVA: 1<<40 + 5}
			mr, err := f.RegDMABufMR(p)
			if err != nil {
				return err
			}
			if mr.LKey == 0 {
				t.Errorf("%+v", mr)
			}
			for range 2 { // a PD with an MR cannot be freed
				if err := f.DeallocPD(pd); !errors.Is(err, unix.EBUSY) {
					t.Errorf("DeallocPD under an MR: %v, want EBUSY", err)
				}
			}
			if err := f.DestroyMR(mr.Handle); err != nil {
				return err
			}
			if err := f.DestroyMR(mr.Handle); !errors.Is(err, unix.ENOENT) {
				t.Errorf("DestroyMR again: %v, want ENOENT", err)
			}
			p.Length++
			if _, err := f.RegDMABufMR(p); !errors.Is(err, unix.EINVAL) {
				t.Errorf("past the end: %v, want EINVAL", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// Debian's own rxe: the kernel refuses before it looks at the descriptor.
func TestVMStockProbe(t *testing.T) {
	f, pd := openNode(t)
	if err := f.ProbeDMABuf(pd); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("probe on stock rxe: %v, want EOPNOTSUPP", err)
	}
}
