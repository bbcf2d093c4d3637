// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ulikunitz/xz"
)

const modulesDep = `kernel/net/ipv4/udp_tunnel.ko.xz:
kernel/net/ipv6/ip6_udp_tunnel.ko.xz: kernel/net/ipv4/udp_tunnel.ko.xz
kernel/drivers/infiniband/core/ib_core.ko.xz:
kernel/drivers/infiniband/core/ib_uverbs.ko.xz: kernel/drivers/infiniband/core/ib_core.ko.xz
kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz: kernel/drivers/infiniband/core/ib_uverbs.ko.xz kernel/drivers/infiniband/core/ib_core.ko.xz kernel/net/ipv6/ip6_udp_tunnel.ko.xz kernel/net/ipv4/udp_tunnel.ko.xz
kernel/drivers/gpu/drm/virtio/virtio-gpu.ko:
`

func openTestTree(t *testing.T) *Tree {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"modules.dep": modulesDep, "modules.builtin": "kernel/drivers/virtio/virtio_pci.ko\nkernel/drivers/dma-buf/udmabuf.ko\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestOrder(t *testing.T) {
	tree := openTestTree(t)
	got, err := tree.Order("ib_uverbs", "virtio_pci", "rdma_rxe", "virtio_gpu", "ib-core")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ib_core", "ib_uverbs", "udp_tunnel", "ip6_udp_tunnel", "rdma_rxe", "virtio_gpu"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := tree.Order("nonesuch"); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown module: got %v", err)
	}
}

func TestHasAndFile(t *testing.T) {
	tree := openTestTree(t)
	for name, has := range map[string]bool{"virtio-gpu": true, "virtio_gpu": true, "udmabuf": true, "vgem": false} {
		if tree.Has(name) != has {
			t.Errorf("Has(%s) = %v", name, !has)
		}
	}
	if f := tree.File("udmabuf"); f != "" {
		t.Errorf("a built-in module has the file %s", f)
	}
	if f := tree.File("virtio_gpu"); filepath.Base(f) != "virtio-gpu.ko" {
		t.Errorf("File(virtio_gpu) = %q", f)
	}
}

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"kernel/drivers/gpu/drm/virtio/virtio-gpu.ko.xz": "virtio_gpu", "vgem": "vgem", "a-b.ko": "a_b", "x.ko.zst": "x",
	} {
		if got := Name(in); got != want {
			t.Errorf("Name(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	const content = "\x7fELF not really"
	var packed bytes.Buffer
	w, err := xz.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	w.Write([]byte(content))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"plain.ko": []byte(content), "packed.ko.xz": packed.Bytes()} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(file); err != nil || string(got) != content {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	cut := filepath.Join(dir, "cut.ko.xz")
	if err := os.WriteFile(cut, packed.Bytes()[:packed.Len()/2], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(cut); err == nil {
		t.Error("a truncated file: no error")
	}
}

func TestInfo(t *testing.T) {
	ko := []byte("junk\x00license=GPL\x00depends=ib_core,udp_tunnel\x00name=rdma_rxe\x00vermagic=6.1.0-56-amd64 SMP preempt mod_unload\x00")
	if rel, err := Release(ko); err != nil || rel != "6.1.0-56-amd64" {
		t.Errorf("Release: %q, %v", rel, err)
	}
	if deps, err := Depends(ko); err != nil || !slices.Equal(deps, []string{"ib_core", "udp_tunnel"}) {
		t.Errorf("Depends: %q, %v", deps, err)
	}
	if deps, err := Depends([]byte("\x00depends=\x00")); err != nil || len(deps) != 0 {
		t.Errorf("no dependencies: %q, %v", deps, err)
	}
	for _, bad := range []string{"", "\x00vermagic=6.1 without an end"} {
		if _, err := Release([]byte(bad)); err == nil {
			t.Errorf("Release(%q): no error", bad)
		}
	}
}
