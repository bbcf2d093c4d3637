// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// there makes device files be there, until the test ends.
func there(t *testing.T, names ...string) {
	t.Helper()
	was := stat
	t.Cleanup(func() { stat = was })
	stat = func(name string) (fs.FileInfo, error) {
		if slices.Contains(names, name) {
			return nil, nil
		}
		return nil, fs.ErrNotExist
	}
}

func twoPairs() *node.Node {
	gpu := func(id, addr, file string) node.GPU {
		a, err := pciaddr.Parse(addr)
		if err != nil {
			panic(err)
		}
		return node.GPU{ID: id, PCI: a, Files: node.Files{Needed: []string{file, "/dev/nvidiactl"}, Optional: []string{"/dev/nvidia-uvm"}}}
	}
	nic := func(id, name, file string) node.NIC {
		return node.NIC{ID: id, Name: name, Ports: []int{1}, Files: node.Files{Needed: []string{file}, Optional: []string{"/dev/infiniband/rdma_cm"}}}
	}
	return &node.Node{
		GPUs: []node.GPU{gpu("g0", "0000:13:00.0", "/dev/nvidia0"), gpu("g1", "0000:14:00.0", "/dev/nvidia1")},
		NICs: []node.NIC{nic("n0", "mlx5_0", "/dev/infiniband/uverbs0"), nic("n1", "mlx5_1", "/dev/infiniband/uverbs1")},
	}
}

func claim() checkpoint.Claim {
	return checkpoint.Claim{Namespace: "default", Name: "c", Devices: []checkpoint.Device{
		{Request: "a", Name: "gpu-g0-nic-n0", Pairs: []pairs.Pair{{GPU: "g0", NIC: "n0"}}},
		{Request: "b", Name: "gpu-g1-nic-n1", Pairs: []pairs.Pair{{GPU: "g1", NIC: "n1"}}},
	}}
}

// Each device of a claim has its own files, and all have the claim's variables. Nothing is left after it.
func TestWrite(t *testing.T) {
	there(t, "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm")
	d := Dir(filepath.Join(t.TempDir(), "cdi"))
	hook := &specs.Hook{HookName: "createRuntime", Path: "/hook", Args: []string{"hook", "unlimited"}}
	if err := d.Write("uid-1", claim(), twoPairs(), hook); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(d.file("uid-1"))
	if err != nil {
		t.Fatal(err)
	}
	var s specs.Spec
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Devices) != 2 || s.Kind != Kind || Kind+"="+s.Devices[1].Name != ID("uid-1", "gpu-g1-nic-n1") {
		t.Fatalf("%s", text)
	}
	for i, want := range [][]string{
		{"/dev/nvidia0", "/dev/nvidiactl", "/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"},
		{"/dev/nvidia1", "/dev/nvidiactl", "/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm"},
	} {
		if got := s.Devices[i].ContainerEdits.Hooks; !reflect.DeepEqual(got, []*specs.Hook{hook}) {
			t.Errorf("device %d has the hooks %v", i, got)
		}
		var got []string
		for _, x := range s.Devices[i].ContainerEdits.DeviceNodes {
			got = append(got, x.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("device %d has %v", i, got)
		}
		env := []string{"GPURDMA_PAIRS=0000:13:00.0=mlx5_0,0000:14:00.0=mlx5_1", "NCCL_IB_HCA==mlx5_0,mlx5_1", "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1"}
		if got := s.Devices[i].ContainerEdits.Env; !slices.Equal(got, env) {
			t.Errorf("device %d has %v", i, got)
		}
	}
	if err := errors.Join(d.Remove("uid-1"), d.Remove("uid-1")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(string(d)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// A claim whose device files are not there is refused with their names: the runtime would fail later.
func TestFilesNotThere(t *testing.T) {
	there(t, "/dev/nvidia0", "/dev/nvidiactl", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1")
	d := Dir(t.TempDir())
	var missing *NotThere
	if err := d.Write("uid-1", claim(), twoPairs()); !errors.As(err, &missing) || !slices.Equal(missing.Files, []string{"/dev/nvidia1"}) {
		t.Error(err)
	}
	if left, err := os.ReadDir(string(d)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// Sweep removes the specification of a claim that was not prepared, and no file of another program.
func TestSweep(t *testing.T) {
	there(t, "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1")
	d := Dir(t.TempDir())
	for _, uid := range []string{"uid-1", "uid-2"} {
		if err := d.Write(uid, claim(), twoPairs()); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(string(d), "nvidia.json")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.Sweep(map[string]checkpoint.Claim{"uid-2": {}}); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(string(d))
	if err != nil || len(left) != 2 || left[0].Name() != "nvidia.json" || d.file("uid-2") != filepath.Join(string(d), left[1].Name()) {
		t.Errorf("%v, %v", left, err)
	}
}

// In a pod the node's /dev is elsewhere. The container gets the files by the names that they have on the node.
func TestDevElsewhere(t *testing.T) {
	dev := t.TempDir()
	for _, name := range []string{"nvidia0", "nvidiactl", "infiniband/uverbs0"} {
		at := filepath.Join(dev, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	n, c := twoPairs(), claim()
	n.Dev = dev
	c.Devices = c.Devices[:1]
	d := Dir(t.TempDir())
	if err := d.Write("uid", c, n); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(d.file("uid"))
	var s specs.Spec
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil || len(s.Devices) != 1 || len(s.Devices[0].ContainerEdits.DeviceNodes) != 3 {
		t.Fatalf("%s, %v", text, err)
	}
	for _, f := range s.Devices[0].ContainerEdits.DeviceNodes {
		if f.Path != f.HostPath || filepath.Dir(f.Path) != "/dev" && filepath.Dir(f.Path) != "/dev/infiniband" {
			t.Errorf("%+v", f)
		}
	}
	var missing *NotThere
	if err := d.Write("uid", claim(), n); !errors.As(err, &missing) || !slices.Equal(missing.Files, []string{"/dev/nvidia1", "/dev/infiniband/uverbs1"}) {
		t.Errorf("%v", err)
	}
}
