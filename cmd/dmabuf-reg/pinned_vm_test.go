// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// One buffer on two NICs: this process has it registered with the NIC beside the GPU,
// and register is refused it for a NIC that does not reach the GPU. As root the
// kernel's list has the cause; without it the message says that it could not be read;
// a trace sees the pin.
//
//testbed:machine fabric
//testbed:kernel 7.2
func TestVMRegisterPinnedElsewhere(t *testing.T) {
	testenv.VM(t)
	gpu := testenv.SoftGPUs(t, "personality=amdgpu")[0]
	for _, nic := range []string{"rxe0", "rxe1"} {
		testenv.SetImporter(t, nic, "pinned")
	}
	a, err := gpualloc.Open("drm:"+gpu.PCI+"/vram", gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	const size = 1 << 16
	buf, err := a.Alloc(t.Context(), size, gpualloc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	c, err := ibvfd.Open("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close()
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: buf.Segments()[0].Buf, Length: size, Access: ibvfd.AccessLocalWrite, Owner: buf})
	if err != nil {
		t.Fatal(err)
	}
	defer mr.Close()
	asNobody := func(args ...string) *run {
		r := command(t, args...)
		r.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		r.Dir = "/"
		return r
	}
	const open, pinned = "unknown", "pinned for another importer"
	for _, row := range []struct {
		name   string
		run    func() *run
		cause  string
		detail string
		remedy string
	}{
		{"root", func() *run { return command(t, "register", "--json", "--nic", "rxe1", "--fd", "3") }, pinned, "attached to rxe0, too", "a buffer for each NIC"},
		{"trace", func() *run { return command(t, "register", "--json", "--trace", "--nic", "rxe1", "--fd", "3") }, pinned, "rxe1 does not reach", "a buffer for each NIC"},
		{"nobody", func() *run { return asNobody("register", "--json", "--nic", "rxe1", "--fd", "3") }, open, "could not be read", "if it is registered with another NIC"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := row.run()
			err := buf.Segments()[0].Buf.Do(func(fd int) error {
				dup, err := unix.Dup(fd)
				if err != nil {
					return err
				}
				file := os.NewFile(uintptr(dup), "dma-buf")
				defer file.Close()
				r.ExtraFiles = []*os.File{file}
				if status := r.do(t); status != cli.ExitFailed {
					t.Errorf("exit status %d\n%s%s", status, &r.out, &r.err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			d := parse[struct {
				Failure *struct{ Stage, Cause string }
			}](t, r.out.Bytes())
			if len(d.Errors) != 1 || d.Errors[0].Errno == nil || d.Errors[0].Errno.Name != "EINVAL" {
				t.Fatalf("errors %+v", d.Errors)
			}
			e := d.Errors[0]
			if e.Cause != row.cause || !strings.Contains(e.Detail, row.detail) || !strings.Contains(e.Remedy, row.remedy) {
				t.Errorf("cause %q, want %q; %+v", e.Cause, row.cause, e)
			}
			if row.name != "trace" {
				return
			}
			if f := d.Result.Failure; f == nil || f.Stage != "pin" || f.Cause != pinned {
				t.Errorf("failure %+v", f)
			}
			if e.Stage == nil || e.Stage.Earliest != "pin" || e.Stage.Latest != "pin" {
				t.Errorf("stage %+v", e.Stage)
			}
		})
	}
}
