// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/ioctl"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Each allocation that a registration or a change of memory makes in the kernel fails once. A call
// that is refused then leaves the MR where it was and nothing attached; one that succeeds all the
// same has done its work. Kernels with fault injection are those of `make kasan`.
//
//testbed:machine fabric+EPYC
//testbed:kernel 7.3 7.2
func TestVMInPlaceFaults(t *testing.T) {
	needsInPlace(t)
	faults := injectFaults(t)
	gpus := testenv.SoftGPUs(t, "personality=xe,amdgpu")
	for _, kind := range importers {
		t.Run(kind, func(t *testing.T) {
			testenv.SetImporter(t, nic, kind)
			pd := openPD(t)
			p := connect(t, pd, ibvfd.QPAttr{})
			var bufs []*gpualloc.Buffer
			for _, spec := range []string{exporter, "drm:" + gpus[0].PCI + "/vram", "drm:" + gpus[1].PCI + "/system"} {
				bufs = append(bufs, alloc(t, spec, 1<<18, gpualloc.Options{}))
			}
			before := len(netlinkMRs(t))
			register := func(b *gpualloc.Buffer) (*ibvfd.MR, error) {
				attr := on(t, b, 0, 1<<16, 1<<40)
				attr.Policy = ibvfd.RouteIoctlOnly // libibverbs' own ioctl does not pass the injector
				return pd.RegMR(attr)
			}
			for i, from := range bufs {
				to := bufs[(i+1)%len(bufs)]
				failed := faults.each(t, func() error {
					mr, err := register(from)
					if err == nil {
						err = mr.Close()
					}
					return err
				}, func(error) {
					if n, mrs := attachments(t, from), len(netlinkMRs(t)); n != 0 || mrs != before {
						t.Errorf("buffer %d has %d attachments, and there are %d MRs more", i, n, mrs-before)
					}
				})
				t.Logf("registering buffer %d: %d failures of allocation", i, failed)

				mr, err := register(from)
				if err != nil {
					t.Fatal(err)
				}
				// From, to the other, and back, so that each try begins at the same place.
				there := ibvfd.ReregAttr{Change: ibvfd.ReregMemory, InPlace: ibvfd.InPlaceOnly, MRAttr: on(t, to, 0, 1<<16, 1<<40)}
				back := ibvfd.ReregAttr{Change: ibvfd.ReregMemory, InPlace: ibvfd.InPlaceOnly, MRAttr: on(t, from, 0, 1<<16, 1<<40)}
				seed := uint64(100 * i)
				state := mr.State()
				failed = faults.each(t, func() error { return mr.Rereg(there) }, func(err error) {
					is, other := to, from
					if err != nil {
						is, other = from, to
						if mr.State() != state {
							t.Errorf("%+v after %v, was %+v", mr.State(), err, state)
						}
					}
					if on, off := attachments(t, is), attachments(t, other); on != 1 || off != 0 {
						t.Errorf("after %v: %d attachments where the MR is, %d where it is not", err, on, off)
					}
					seed += 3
					p.goesTo(t, mr, is, 0, other, seed)
					if err == nil {
						if err := mr.Rereg(back); err != nil {
							t.Fatal(err)
						}
					}
				})
				t.Logf("from buffer %d to the next: %d failures of allocation", i, failed)
				closed(t, mr)
			}
		})
	}
}

// faultInjector carries ioctls to the kernel. One that the test names gets a kernel in which
// the allocation of a number fails.
type faultInjector struct {
	ioctl.Transport
	nth   int  // of the next request for an MR; 0 for none
	fired bool // the last such request has had its failure
}

// injectFaults makes all requests of contexts that are opened from now on go through the injector.
func injectFaults(t *testing.T) *faultInjector {
	t.Helper()
	const debug = "/sys/kernel/debug"
	if _, err := os.Stat("/proc/thread-self/fail-nth"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this kernel has no fault injection: CONFIG_FAULT_INJECTION is off")
	}
	// All allocations are meant, those of single pages and those that may wait, too.
	for name, value := range map[string]string{
		"failslab/ignore-gfp-wait": "N", "failslab/verbose": "0",
		"fail_page_alloc/ignore-gfp-wait": "N", "fail_page_alloc/min-order": "0", "fail_page_alloc/verbose": "0",
	} {
		path := filepath.Join(debug, name)
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set := func(v []byte) {
			if err := os.WriteFile(path, v, 0o600); err != nil {
				t.Error(err)
			}
		}
		set([]byte(value))
		t.Cleanup(func() { set(bytes.TrimSpace(was)) })
	}
	f := &faultInjector{Transport: ioctl.Kernel}
	ioctl.Kernel = f
	t.Cleanup(func() { ioctl.Kernel = f.Transport })
	return f
}

// each calls try with the first allocation failing, then with the second, and so on
// until try makes fewer. After each call, and the last, in which nothing fails, it
// calls check. It returns how often an allocation has failed.
func (f *faultInjector) each(t *testing.T, try func() error, check func(error)) int {
	t.Helper()
	for nth := 1; ; nth++ {
		f.nth, f.fired = nth, false
		err := try()
		f.nth = 0
		if !f.fired {
			if err != nil {
				t.Fatalf("without a failure of allocation: %v", err)
			}
			check(nil)
			if nth == 1 {
				t.Error("no allocation failed")
			}
			return nth - 1
		}
		if err != nil && !errors.Is(err, unix.ENOMEM) {
			t.Errorf("allocation %d fails: %v, want ENOMEM", nth, err)
		}
		check(err)
		if t.Failed() {
			t.Fatalf("that was with allocation %d", nth)
		}
	}
}

// changesMR reads the head of a request (struct ib_uverbs_ioctl_hdr): REG_DMABUF_MR and
// REREG_DMABUF_MR of UVERBS_OBJECT_MR.
func changesMR(arg unsafe.Pointer) bool {
	head := (*[3]uint16)(arg) // length, object_id, method_id
	return head[1] == 7 && (head[2] == 4 || head[2] == 20)
}

// Ioctl passes a request on. The thread's fail-nth is set for no longer than the call: the
// Go runtime does not survive if its own allocations fail.
func (f *faultInjector) Ioctl(fd int, req uint32, arg unsafe.Pointer) error {
	if f.nth == 0 || req != uverbs.VerbsIoctl || !changesMR(arg) {
		return f.Transport.Ioctl(fd, req, arg)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := unix.Open("/proc/thread-self/fail-nth", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	n := strconv.AppendInt(nil, int64(f.nth), 10)
	left := make([]byte, 16)
	f.nth = 0
	if _, err := unix.Pwrite(own, n, 0); err != nil {
		return err
	}
	result := f.Transport.Ioctl(fd, req, arg)
	got, err := unix.Pread(own, left, 0)
	if err != nil {
		return err
	}
	if _, err := unix.Pwrite(own, []byte("0"), 0); err != nil {
		return err
	}
	f.fired = string(bytes.TrimSpace(left[:got])) == "0"
	return result
}
