// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/redact"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// On 6.1, for which there is no software GPU, the exporters have system memory only, and the kernel
// is built without peer-to-peer. If a GPU of amdgpu were in the machine's slot, this would keep its
// memory from any NIC. The test bed's rxe is not the kernel's own there, so that no outcome of a
// registration is predicted.
//
//testbed:kernel 6.1
func TestVMOldKernel(t *testing.T) {
	testenv.VM(t)
	d, status := checked(t, nil, "--json")
	if len(d.Pairs) == 0 || !strings.HasPrefix(d.Machine.Kernel, "6.1.") {
		t.Fatalf("%s: %d pairs, status %d", d.Machine.Kernel, len(d.Pairs), status)
	}
	for _, p := range d.Pairs {
		if p.Outcome != "staged" || p.Counts || !strings.Contains(strings.Join(p.Why, "; "), "system memory only") {
			t.Errorf("%+v", p)
		}
	}
	if built := findingsWith(d, "KRN-CFG-P2PDMA", ""); len(built) != 1 || built[0].Result != "skip" || !strings.HasSuffix(built[0].Read, "CONFIG_PCI_P2PDMA is not set") {
		t.Errorf("%+v", built)
	}

	file, gpu := supposed(t)
	d, status = checked(t, nil, "--json", "--snapshot", file, "--gpu", "amdgpu")
	if len(d.Pairs) == 0 || status != cli.ExitFailed {
		t.Fatalf("%d pairs, status %d", len(d.Pairs), status)
	}
	for _, p := range d.Pairs {
		t.Logf("%s -> %s: %s: %v; %+v", p.GPU, p.NIC, p.Outcome, p.Why, p.Remedy)
		if p.GPU != gpu || p.Outcome != "broken" || !strings.Contains(strings.Join(p.Why, "; "), "the kernel is built without CONFIG_PCI_P2PDMA") || p.Remedy == nil {
			t.Errorf("%+v", p)
		}
	}
	if built := findingsWith(d, "KRN-CFG-P2PDMA", ""); len(built) != 1 || built[0].Result != "fail" || built[0].Remedy == nil || built[0].Remedy.Command != "CONFIG_PCI_P2PDMA=y" {
		t.Errorf("%+v", built)
	}
}

// supposed is a snapshot of this machine with a GPU of amdgpu's in the place of
// its display adapter.
func supposed(t *testing.T) (file, gpu string) {
	t.Helper()
	taken, err := snapshot.Take(machine.Source{})
	if err != nil {
		t.Fatal(err)
	}
	tree := files.NewTree()
	put := func(name string, f files.File) { err = errors.Join(err, tree.Replace(name, f)) }
	for name, f := range taken.All() {
		put(name, f)
	}
	for name, f := range taken.All() {
		if path.Base(name) != "class" || !strings.HasPrefix(string(f.Data), "0x03") {
			continue
		}
		dir := path.Dir(name)
		gpu = path.Base(dir)
		put(dir+"/vendor", files.File{Data: []byte("0x1002\n")})
		put(dir+"/device", files.File{Data: []byte("0x74a1\n")})
		put(dir+"/driver", files.File{Link: redact.Relative(dir, "sys/bus/pci/drivers/amdgpu")})
		for _, memory := range []string{"mem_info_vram_total", "mem_info_vis_vram_total"} {
			put(dir+"/"+memory, files.File{Data: []byte("206141652992\n")})
		}
	}
	if gpu == "" {
		t.Fatal("no display adapter")
	}
	put("sys/module/amdgpu", files.File{Dir: true})
	put("sys/module/amdgpu/taint", files.File{Data: []byte("\n")})
	file = filepath.Join(t.TempDir(), "machine.tar.gz")
	f, err2 := os.Create(file)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(snapshot.WriteFiles(f, version, tree.All()), f.Close()); err != nil {
		t.Fatal(err)
	}
	return file, gpu
}

// Stock rxe imports no dma-bufs, on no kernel: every pair is said to be refused,
// and a registration is.
func TestVMStockP2PCheck(t *testing.T) {
	testenv.VM(t)
	d, _ := checked(t, nil, "--json")
	if len(d.Pairs) == 0 {
		t.Fatal("no pair")
	}
	for _, p := range d.Pairs {
		if p.Outcome != "refused" || p.Errno == nil || p.Errno.Name != "EOPNOTSUPP" || p.Stage != "uverbs" || !slices.ContainsFunc(p.Why, func(why string) bool { return strings.Contains(why, "imports no dma-bufs") }) {
			t.Errorf("%+v", p)
		}
	}
	if probe := findingsWith(d, "NIC-DMABUF-PROBE", "rxe0"); len(probe) != 1 || probe[0].Result == "pass" || !strings.HasSuffix(probe[0].Read, "EOPNOTSUPP") {
		t.Errorf("%+v", probe)
	}

	alloc, err := gpualloc.Open("drm:vgem", gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer alloc.Close()
	const size = 64 << 10
	buf, err := alloc.Alloc(context.Background(), size, gpualloc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	dev, err := ibvfd.Open("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close()
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: buf.Segments()[0].Buf, Length: size, Access: ibvfd.AccessLocalWrite})
	if err == nil {
		mr.Close()
	}
	if !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("a registration: %v", err)
	}
}
