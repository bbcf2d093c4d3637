// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// answer is what a registration came to. A refusal has an errno; a success has
// moved bytes, and each of them was compared.
type answer struct {
	errno         unix.Errno
	route         ibvfd.Route
	lkey, rkey    bool // there is one
	written, read uint64
	guard         uint64 // bytes outside the MR that were seen untouched
}

// askC has the independent C program (testbed/cprog) register the range of the
// descriptor and move bytes through it.
func askC(t *testing.T, fd int, size int64, attr ibvfd.MRAttr, route string) answer {
	t.Helper()
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(dup), "buffer")
	defer file.Close()
	cmd := exec.CommandContext(t.Context(), "dmabuf-mr", "verify", "--device", nic, "--exporter", "fd:3", "--route", route,
		"--size", fmt.Sprint(size), "--offset", fmt.Sprint(attr.Offset), "--length", fmt.Sprint(attr.Length),
		"--iova", fmt.Sprint(attr.IOVA), "--access", fmt.Sprint(uint32(attr.Access)))
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("the independent C program (make cprog): %v", err)
	}
	var c struct {
		OK                   bool
		Route, Stage         string
		LKey, RKey           uint32
		Written, Read, Guard uint64
		Errno                unix.Errno `json:"errno_number"`
	}
	if err := json.Unmarshal(out, &c); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if !c.OK {
		if c.Stage != "register" || c.Errno == 0 {
			t.Fatalf("%q failed where it should not: %s", cmd.Args, out)
		}
		return answer{errno: c.Errno}
	}
	routes := map[string]ibvfd.Route{"ioctl": ibvfd.RouteIoctl, "provider": ibvfd.RouteProvider}
	return answer{
		route: routes[c.Route], lkey: c.LKey != 0, rkey: c.RKey != 0,
		written: c.Written, read: c.Read, guard: c.Guard,
	}
}

// askGo does the same with this package, in the same order.
func askGo(t *testing.T, p *pair, host *hostmem.Buf, hmr *ibvfd.MR, buf *gpualloc.Buffer, attr ibvfd.MRAttr) answer {
	t.Helper()
	mr, err := hmr.PD().RegMR(attr)
	if err != nil {
		return answer{errno: asRegError(t, err).Errno}
	}
	defer closed(t, mr)
	a := answer{route: mr.Route(), lkey: mr.LKey() != 0, rkey: mr.RKey() != 0}
	n := int(attr.Length)
	want := make([]byte, buf.Size())
	fill(want, 1)
	if _, err := buf.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	fill(host.Bytes()[:n], 2)
	copy(want[attr.Offset:], host.Bytes()[:n])
	if c := p.move(t, ibvfd.OpWrite, hmr, mr, 0, n); c.Err() != nil {
		t.Fatal(c.Err())
	}
	got := make([]byte, buf.Size())
	if _, err := buf.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		a.written, a.guard = attr.Length, uint64(len(want))-attr.Length
	}
	fill(want[attr.Offset:attr.Offset+attr.Length], 3)
	if _, err := buf.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if c := p.move(t, ibvfd.OpRead, hmr, mr, 0, n); c.Err() != nil {
		t.Fatal(c.Err())
	}
	if bytes.Equal(host.Bytes()[:n], want[attr.Offset:attr.Offset+attr.Length]) {
		a.read = attr.Length
	}
	return a
}

// The independent C program and we get the same answers from the same kernel:
// same buffers, same arguments, by each route.
func TestVMSameAsTheCProgram(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{})
	const size = 1 << 18
	host, hmr := hostMR(t, pd, size)
	page := uint64(os.Getpagesize())
	none := size * uint64(8) // past any end
	shapes := []struct {
		name   string
		attr   ibvfd.MRAttr
		refuse unix.Errno
	}{
		{"all of it", ibvfd.MRAttr{Length: size, Access: allRemote}, 0},
		{"two bytes across a page", ibvfd.MRAttr{Offset: page - 1, Length: 2, IOVA: page - 1, Access: allRemote}, 0},
		{"unaligned, far IOVA", ibvfd.MRAttr{Offset: page + 123, Length: 70001, IOVA: 1<<40 + page + 123, Access: allRemote}, 0},
		{"the last byte", ibvfd.MRAttr{Offset: size - 1, Length: 1, IOVA: size - 1, Access: allRemote}, 0},
		{"length 0", ibvfd.MRAttr{Access: allRemote}, unix.EINVAL},
		{"past the end", ibvfd.MRAttr{Offset: page, Length: size, IOVA: page, Access: allRemote}, unix.EINVAL},
		{"offset past the end", ibvfd.MRAttr{Offset: none, Length: page, Access: allRemote}, unix.EINVAL},
		{"overflow", ibvfd.MRAttr{Offset: -page, Length: 2 * page, Access: allRemote}, unix.EINVAL},
		{"IOVA overflow", ibvfd.MRAttr{Length: page, IOVA: -page, Access: allRemote}, unix.EINVAL},
		{"page offsets differ", ibvfd.MRAttr{Offset: 8, Length: 8, IOVA: 16, Access: allRemote}, unix.EINVAL},
		{"flag not for dma-bufs", ibvfd.MRAttr{Length: page, Access: allRemote | ibvfd.AccessMWBind}, unix.EINVAL},
		{"unknown flag", ibvfd.MRAttr{Length: page, Access: allRemote | 1<<30}, unix.EINVAL},
		{"remote without local write", ibvfd.MRAttr{Length: page, Access: ibvfd.AccessRemoteWrite}, unix.EINVAL},
	}
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		buf := alloc(t, x.Spec, size, gpualloc.Options{})
		for i, s := range shapes {
			policies := []ibvfd.RoutePolicy{ibvfd.RouteAuto}
			if x.Repeated(t) {
				policies = append(policies, ibvfd.RouteIoctlOnly)
			}
			if i == 0 { // where the provider has the op, auto is its route
				policies = append(policies, ibvfd.RouteProviderOnly)
			}
			for _, policy := range policies {
				t.Run(s.name+"/"+policyName[policy], func(t *testing.T) {
					attr := s.attr
					attr.Kind, attr.Buf, attr.Policy, attr.SkipChecks = ibvfd.DMABufFD, segment(t, buf), policy, true
					var c answer
					err := attr.Buf.Do(func(fd int) error {
						c = askC(t, fd, size, attr, policyName[policy])
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					if ours := askGo(t, p, host, hmr, buf, attr); ours != c {
						t.Errorf("C: %+v\nGo: %+v", c, ours)
					}
					if policy == ibvfd.RouteProviderOnly {
						return // Debian's provider lacks the op
					}
					if c.errno != s.refuse || c.errno == 0 && (!c.lkey || !c.rkey || c.written != attr.Length || c.read != attr.Length || c.guard != size-attr.Length) {
						t.Errorf("both: %+v, want errno %d", c, s.refuse)
					}
				})
			}
		}
	})

	// A descriptor that is none.
	memfd, err := unix.MemfdCreate("no dma-buf", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memfd)
	if err := unix.Ftruncate(memfd, size); err != nil {
		t.Fatal(err)
	}
	attr := ibvfd.MRAttr{Kind: ibvfd.DMABufFD, FD: memfd, Length: size, Access: allRemote, SkipChecks: true}
	c := askC(t, memfd, size, attr, "auto")
	if ours := askGo(t, p, host, hmr, nil, attr); ours != c || c.errno != unix.EINVAL {
		t.Errorf("a memfd: C %+v, Go %+v; want EINVAL", c, ours)
	}
}
