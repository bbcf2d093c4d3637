// SPDX-License-Identifier: Apache-2.0

package ibdev

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/pciaddr"
)

func gidOf(t *testing.T, text string) [16]byte {
	t.Helper()
	gid, err := parseGID(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return gid
}

func TestDevices(t *testing.T) {
	sys := sysfs.New(testenv.DeviceTree(t))
	got, err := List(sys.Root())
	if err != nil {
		t.Fatal(err)
	}
	v1, v2 := gidOf(t, "fe80:0000:0000:0000:0011:22ff:fe33:4455"), gidOf(t, "0000:0000:0000:0000:0000:ffff:0a09:0001")
	want := []Info{{
		Name: "roce0", Uverbs: "/dev/infiniband/uverbs3", Kind: "CA", NodeGUID: "0011:22ff:fe33:4455", NetDevs: []string{"eth7"},
		Ports: []Port{{
			Num: 1, State: PortActive, MTU: 1024, LinkLayer: LinkEthernet,
			GIDs: []GID{{0, v1, GIDRoCEv1, "eth7", 0}, {1, v2, GIDRoCEv2, "eth7", 0}},
		}},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	brief, err := ListWithoutGIDs(sys.Root())
	if err != nil {
		t.Fatal(err)
	}
	want[0].NetDevs, want[0].Ports = []string{}, []Port{{Num: 1, State: PortActive, LinkLayer: LinkEthernet, GIDs: []GID{}}}
	if d := cmp.Diff(want, brief); d != "" {
		t.Errorf("without GIDs: %s", d)
	}
	raw, err := json.Marshal(got[0].Ports[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"state":"active"`, `"link_layer":"Ethernet"`, `"gid":"0000:0000:0000:0000:0000:ffff:0a09:0001"`, `"type":"RoCE v2"`} {
		if !strings.Contains(string(raw), part) {
			t.Errorf("%s has no %s", raw, part)
		}
	}
	if list, err := List(t.TempDir()); list != nil || err != nil {
		t.Errorf("a machine without RDMA: %v, %v", list, err)
	}
}

// A device whose ports cannot be read is there, and hides no other.
func TestDevicesUnreadable(t *testing.T) {
	root := sysfs.New(testenv.DeviceTree(t)).Root()
	ports := filepath.Join(root, "class/infiniband/another0/ports")
	if err := errors.Join(os.MkdirAll(filepath.Dir(ports), 0o755), os.Symlink("ports", ports)); err != nil {
		t.Fatal(err)
	}
	list, err := List(root)
	if err == nil || len(list) != 2 || list[0].Name != "another0" || len(list[0].Ports) != 0 || list[1].Name != "roce0" || len(list[1].Ports) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// A device that cannot be looked at is not one that is gone.
func TestDeviceThatCannotBeLookedAt(t *testing.T) {
	sys := sysfs.New(testenv.DeviceTree(t))
	testenv.WatchFiles(t, sys.Root(), func(name string) error {
		if name == sys.Path(classDir, "roce0") {
			return unix.EIO
		}
		return nil
	})
	list, err := ListWithoutGIDs(sys.Root())
	if !errors.Is(err, unix.EIO) || !slices.ContainsFunc(list, func(d Info) bool { return d.Name == "roce0" }) {
		t.Errorf("%+v, %v", list, err)
	}
}

// A device on PCI has its address and driver through links; the attribute "parent" shows that a device is a software one.
func TestDeviceLinks(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	const fn = "devices/pci0000:00/0000:00:01.0/0000:03:00.1"
	write(fn+"/infiniband/mlx5_1/node_type", "1: CA")
	write(fn+"/infiniband/mlx5_1/ports/1/link_layer", "InfiniBand")
	write(fn+"/infiniband/mlx5_1/ports/1/state", "1: DOWN")
	write("bus/pci/drivers/mlx5_core/bind", "")
	link("../../../../bus/pci/drivers/mlx5_core", fn+"/driver")
	link("../..", fn+"/infiniband/mlx5_1/device")
	link("../../"+fn+"/infiniband/mlx5_1", "class/infiniband/mlx5_1")
	write("class/infiniband/rxe7/node_type", "1: CA")
	write("class/infiniband/rxe7/parent", "eth0")
	write("class/infiniband/siw7/node_type", "4: RNIC")
	write("class/infiniband/siw7/parent", "lo")

	list, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 {
		t.Fatalf("%+v", list)
	}
	m, r, s := list[0], list[1], list[2]
	addr := pciaddr.Addr{Bus: 3, Function: 1}
	if m.PCI == nil || *m.PCI != addr || m.Driver != "mlx5_core" || m.Kind != "CA" || m.Uverbs != "" || m.Software() {
		t.Errorf("mlx5_1: %+v", m)
	}
	if len(m.Ports) != 1 || m.Ports[0].State != PortDown || m.Ports[0].LinkLayer != LinkInfiniBand {
		t.Errorf("mlx5_1: %+v", m.Ports)
	}
	if r.Kind != "rxe" || r.Driver != "rdma_rxe" || !r.Software() || !reflect.DeepEqual(r.NetDevs, []string{"eth0"}) {
		t.Errorf("rxe7: %+v", r)
	}
	if s.Kind != "siw" || !s.Software() {
		t.Errorf("siw7: %+v", s)
	}
}

func TestMTU(t *testing.T) {
	for bytes, enum := range map[int]int{math.MinInt: 0, -28: 0, -1: 0, 0: 0, 255: 0, 256: 1, 512: 2, 1023: 2, 1024: 3, 2048: 4, 4096: 5, 9000: 5} {
		if got := MTUEnum(bytes); got != enum {
			t.Errorf("MTUEnum(%d) = %d, want %d", bytes, got, enum)
		}
	}
	for enum, bytes := range map[int]int{0: 0, 1: 256, 5: 4096, 6: 0, -1: 0} {
		if got := MTUBytes(enum); got != bytes {
			t.Errorf("MTUBytes(%d) = %d, want %d", enum, got, bytes)
		}
	}
}

func TestGIDTableErrors(t *testing.T) {
	for _, text := range []string{"", "zz", "fe80::1"} {
		if _, err := parseGID(text, nil); err == nil {
			t.Errorf("parseGID(%q) succeeded", text)
		}
	}
	if _, err := ReadGIDs(t.TempDir(), "none", 1); err == nil {
		t.Error("no table, no error")
	}
}
