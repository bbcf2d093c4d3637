// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// nodeKernel is a kernel whose node is opened: it makes contexts and PDs, too.
type nodeKernel struct {
	kernel
	context unix.Errno // to GET_CONTEXT
	pd      unix.Errno // to ALLOC_PD
	pds     int
}

func (k *nodeKernel) Ioctl(fd int, req uint32, arg unsafe.Pointer) error {
	object, method := *(*uint16)(unsafe.Add(arg, 2)), *(*uint16)(unsafe.Add(arg, 4))
	if *(*uint32)(unsafe.Add(arg, 16)) != k.driver || req != uverbs.VerbsIoctl || object != 0 {
		return k.kernel.Ioctl(fd, req, arg)
	}
	data := func(i int) unsafe.Pointer { return unsafe.Add(arg, 24+16*i+8) }
	errno := unix.Errno(0)
	switch {
	case method == 3:
		errno = k.context
	case *(*uint16)(unsafe.Add(arg, 6)) == 3 && *(*uint64)(data(2)) == 3:
		if errno = k.pd; errno == 0 {
			k.pds++
			**(**uint32)(data(1)) = 77
		}
	case *(*uint64)(data(1)) == 4:
		if *(*uint32)(data(0)) != 77 {
			errno = unix.ENOENT
		}
		k.pds--
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// node is a device whose node is a file that can be opened.
func node(t *testing.T) (sysfs.FS, ibdev.Info) {
	t.Helper()
	sys := deviceTree(t)
	info, err := ibdev.Look(sys.Root(), "roce0")
	if err != nil {
		t.Fatal(err)
	}
	info.Uverbs = filepath.Join(t.TempDir(), "uverbs3")
	if err := os.WriteFile(info.Uverbs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return sys, info
}

// Without libibverbs dma-bufs are registered by the kernel's ioctl, and what
// takes a provider says so.
func TestOpenKernel(t *testing.T) {
	sys, info := node(t)
	k := &nodeKernel{kernel: kernel{driver: 14, reg: always(0)}}
	c, err := openKernel("roce0", info, sys, k)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	attr := MRAttr{Kind: DMABufFD, FD: openFile(t), Length: 4096, Access: AccessLocalWrite | AccessRemoteWrite, SkipChecks: true}
	for _, policy := range []RoutePolicy{RouteAuto, RouteIoctlOnly} {
		attr.Policy = policy
		mr, err := pd.RegMR(attr)
		if err != nil {
			t.Fatalf("policy %d: %v", policy, err)
		}
		if mr.Route() != RouteIoctl || mr.LKey() == 0 || k.live != 1 {
			t.Errorf("policy %d: %s, %#x, %d live", policy, mr.Route(), mr.LKey(), k.live)
		}
		if err := mr.Close(); err != nil || k.live != 0 {
			t.Errorf("%v, %d live", err, k.live)
		}
	}

	host, err := hostmem.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	_, ofHost := pd.RegMR(MRAttr{Kind: HostMemory, Host: host.Bytes(), Length: 4096, Access: AccessLocalWrite, SkipChecks: true})
	_, ofCQ := c.CreateCQ(8)
	_, ofDevice := c.QueryDevice()
	_, ofPort := c.QueryPort(1)
	for what, err := range map[string]error{"host memory": ofHost, "CQ": ofCQ, "device": ofDevice, "port": ofPort} {
		if !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(pd.Close(), c.Close(), c.Close()); err != nil || k.pds != 0 {
		t.Errorf("%v, %d PDs left", err, k.pds)
	}
}

// A device that does not open says why.
func TestOpenKernelRefused(t *testing.T) {
	sys, info := node(t)
	k := &nodeKernel{kernel: kernel{driver: 14, reg: always(0)}, context: unix.EINVAL}
	if _, err := openKernel("roce0", info, sys, k); !errors.Is(err, unix.EINVAL) || explained(err) == nil {
		t.Errorf("vendor data: %v", err)
	}
	gone := info
	gone.Uverbs += "-gone"
	if _, err := openKernel("roce0", gone, sys, k); !errors.Is(err, fs.ErrNotExist) || explained(err) == nil {
		t.Errorf("no node: %v", err)
	}
	gone.Uverbs = ""
	if _, err := openKernel("roce0", gone, sys, k); !errors.Is(err, unix.ENOENT) || explained(err) == nil {
		t.Errorf("no uverbs: %v", err)
	}
	if _, err := OpenKernel("none0"); !errors.Is(err, ibdev.ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
	k.context, k.pd = 0, unix.EFAULT
	c, err := openKernel("roce0", info, sys, k)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.AllocPD(); !errors.Is(err, unix.EFAULT) {
		t.Errorf("PD: %v", err)
	}
}

// explained is the error's remedy and detail, nil where one is missing.
func explained(err error) error {
	_, e := asFailed(err)
	if e == nil || e.Detail == "" || e.Remedy == "" {
		return nil
	}
	return e
}
