// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package canary

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
	"github.com/gpurdma/gpurdma/gpualloc/cuda"
	_ "github.com/gpurdma/gpurdma/gpualloc/levelzero"
	"github.com/gpurdma/gpurdma/gpualloc/rocm"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// doubles makes the vendors' libraries those of testbed/doubles, which keep
// their device memory in the kernel's exporters.
func doubles(t *testing.T) {
	t.Helper()
	for name, file := range map[string]string{
		"GPURDMA_LIBCUDA": "cuda/libcuda.so.1",
		"GPURDMA_LIBHSA":  "hsa/libhsa-runtime64.so.1",
		"GPURDMA_LIBZE":   "ze/libze_loader.so.1",
	} {
		path, err := filepath.Abs(filepath.Join("../build/doubles", file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("the testbed comes with the doubles (make doubles): %v", err)
		}
		t.Setenv(name, path)
	}
}

// verified runs every case on a buffer.
func verified(t *testing.T, buf *gpualloc.Buffer) {
	t.Helper()
	rep, err := Verify(t.Context(), openNIC(t, testNIC), buf, Options{Chunk: 256 << 10})
	if err != nil || !rep.OK {
		t.Fatalf("OK %v, %v", rep.OK, err)
	}
}

// Through each vendor's runtime: allocated, exported, registered, transferred,
// and checked through the runtime's own copies.
func TestVMVendorRuntimes(t *testing.T) {
	testenv.VM(t)
	doubles(t)
	for _, spec := range []string{"cuda:0", "cuda:1/vmm", "rocm:0", "ze:1"} {
		t.Run(spec, func(t *testing.T) {
			verified(t, allocate(t, spec, 1<<20+1, gpualloc.Options{}))
		})
	}
}

// The caller's own memory, from the middle of a page to the middle of another:
// registered as package align says, each byte is at its own address, and no
// byte beside the range changes.
func TestVMVendorMemoryOfTheCaller(t *testing.T) {
	testenv.Need(t, "udmabuf", "6.12", testenv.Node("/dev/udmabuf"))
	doubles(t)
	export := map[string]func(ptr uintptr, n int64, pageAligned bool) (*gpualloc.Buffer, []align.MR, error){
		"cuda:0": func(ptr uintptr, n int64, pageAligned bool) (*gpualloc.Buffer, []align.MR, error) {
			e, err := cuda.Export(ptr, n, cuda.ExportOptions{PageAlignedIOVA: pageAligned})
			if err != nil {
				return nil, nil, err
			}
			return e.Buffer, e.MRs, nil
		},
		"rocm:1": func(ptr uintptr, n int64, pageAligned bool) (*gpualloc.Buffer, []align.MR, error) {
			e, err := rocm.Export(ptr, n, rocm.ExportOptions{PageAlignedIOVA: pageAligned})
			if err != nil {
				return nil, nil, err
			}
			return e.Buffer, e.MRs, nil
		},
	}
	for spec, export := range export {
		for _, pageAligned := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s page-aligned %v", spec, pageAligned), func(t *testing.T) {
				const at, length = 77_777, 1<<20 + 3
				owned := allocate(t, spec, 3<<20, gpualloc.Options{})
				buf, mrs, err := export(uintptr(owned.Segments()[0].Addr)+at, length, pageAligned)
				if err != nil {
					t.Fatal(err)
				}
				defer buf.Close()
				if off := buf.Segments()[0].Offset; off%page() == 0 {
					t.Errorf("offset %#x is aligned: not the case that is tested", off)
				}
				want := make([]byte, owned.Size())
				copy(want[at:], written(t, openNIC(t, testNIC), buf, mrs))
				got := make([]byte, owned.Size())
				if _, err := owned.ReadAt(got, 0); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Error("what arrived is not what was sent, or is elsewhere")
				}
			})
		}
	}
}

// written sends random bytes to the whole of buf by RDMA WRITE, each segment
// by its GPU's addresses, and returns them.
func written(t *testing.T, c *ibvfd.Context, buf *gpualloc.Buffer, mrs []align.MR) []byte {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	closing := func(c io.Closer) {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	pd, err := c.AllocPD()
	check(err)
	closing(pd)
	cq, err := c.CreateCQ(4)
	check(err)
	closing(cq)
	a, b, err := ibvfd.LoopbackPair(pd, cq, ibvfd.QPAttr{Type: ibvfd.RC, SendDepth: 1, RecvDepth: 1, SendSGE: 1, RecvSGE: 1})
	check(err)
	closing(a)
	closing(b)
	host, err := hostmem.Alloc(int(buf.Size()))
	check(err)
	closing(host)
	for i := range host.Bytes() {
		host.Bytes()[i] = byte(rand.Uint32())
	}
	hmr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: host.Bytes(), Length: uint64(buf.Size()), Access: ibvfd.AccessLocalWrite, Owner: host})
	check(err)
	closing(hmr)
	at := uint64(0)
	for i, seg := range buf.Segments() {
		mr, err := pd.RegMR(ibvfd.MRAttr{
			Kind: ibvfd.DMABufFD, Buf: seg.Buf, Offset: mrs[i].Offset, Length: mrs[i].Length, IOVA: mrs[i].IOVA,
			Access: ibvfd.AccessLocalWrite | ibvfd.AccessRemoteWrite, Owner: buf,
		})
		check(err)
		_, err = a.PostSend([]ibvfd.SendWR{{
			Op: ibvfd.OpWrite, Flags: ibvfd.SendSignaled, RemoteAddr: seg.Addr, RKey: mr.RKey(),
			SGE: []ibvfd.SGE{{Addr: hmr.IOVA() + at, Length: uint32(seg.Size), LKey: hmr.LKey()}},
		}})
		check(err)
		wc := make([]ibvfd.WC, 1)
		_, err = cq.PollUntil(t.Context(), wc)
		check(err)
		check(wc[0].Err())
		check(mr.Close())
		at += uint64(seg.Size)
	}
	return bytes.Clone(host.Bytes())
}
