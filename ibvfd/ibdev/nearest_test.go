// SPDX-License-Identifier: Apache-2.0

package ibdev

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/pciaddr"
)

// pciTree makes a sysfs with the functions given by their chains, such as
// "pci0000:00/0000:00:01.0/0000:01:00.0", each on a NUMA node.
func pciTree(t *testing.T, nodes map[string]string) string {
	t.Helper()
	root := t.TempDir()
	bus := filepath.Join(root, "bus/pci/devices")
	if err := os.MkdirAll(bus, 0o755); err != nil {
		t.Fatal(err)
	}
	for chain, node := range nodes {
		dir := filepath.Join(root, "devices")
		for part := range strings.SplitSeq(chain, "/") {
			dir = filepath.Join(dir, part)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(part, "pci") {
				continue
			}
			for file, text := range map[string]string{"vendor": "0x15b3", "device": "0x1021", "class": "0x020000", "numa_node": node} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(dir, filepath.Join(bus, part)); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
	}
	return root
}

func addr(t *testing.T, s string) *pciaddr.Addr {
	t.Helper()
	a, err := pciaddr.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return &a
}

func TestNearest(t *testing.T) {
	sys := pciTree(t, map[string]string{
		"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0": "0", // the GPU, below a switch
		"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0": "0", // same switch
		"pci0000:00/0000:00:02.0/0000:05:00.0":                           "0", // same host bridge
		"pci0000:40/0000:40:01.0/0000:41:00.0":                           "0", // other host bridge, same node
		"pci0000:80/0000:80:01.0/0000:81:00.0":                           "1", // other host bridge and node
	})
	up, down := []Port{{Num: 1, State: PortActive}}, []Port{{Num: 1, State: PortDown}}
	device := func(name, at string, ports []Port) Info {
		d := Info{Name: name, Ports: ports}
		if at != "" {
			d.PCI = addr(t, at)
		}
		return d
	}
	sameSwitch, sameBridge := device("switch", "0000:04:00.0", up), device("bridge", "0000:05:00.0", up)
	sameNode, otherNode := device("node", "0000:41:00.0", up), device("far", "0000:81:00.0", up)
	noPCI, gone := device("soft", "", up), device("gone", "0000:99:00.0", up)
	gpu := addr(t, "0000:03:00.0")
	for _, tt := range []struct {
		name    string
		mem     *pciaddr.Addr
		devices []Info
		want    string
		why     string
	}{
		{"all", gpu, []Info{noPCI, gone, otherNode, sameNode, sameBridge, sameSwitch}, "switch", "nearest of 6: 0000:04:00.0 and the memory's 0000:03:00.0: below the bridge 0000:01:00.0"},
		{"host bridge", gpu, []Info{otherNode, sameNode, sameBridge}, "bridge", "host bridge"},
		{"NUMA node", gpu, []Info{otherNode, sameNode, gone, noPCI}, "node", "NUMA node 0"},
		{"far but known", gpu, []Info{noPCI, otherNode, gone}, "far", "different host bridges"},
		{"unknown", gpu, []Info{noPCI, gone}, "soft", "unknown"},
		{"port down", gpu, []Info{device("dark", "0000:04:00.0", down), otherNode}, "far", ""},
		{"only one, and down", gpu, []Info{device("dark", "0000:04:00.0", down)}, "dark", "the only one; 0000:04:00.0"},
		{"system memory", nil, []Info{device("dark", "", down), sameBridge, sameSwitch}, "bridge", "equally near"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Nearest(sys, tt.mem, tt.devices)
			if err != nil || got.Name != tt.want || !strings.Contains(got.Why, tt.why) {
				t.Errorf("%q because %q, %v; want %q because %q", got.Name, got.Why, err, tt.want, tt.why)
			}
		})
	}
	if _, err := Nearest(sys, gpu, nil); !errors.Is(err, ErrNoDevice) {
		t.Errorf("no devices: %v, want ErrNoDevice", err)
	}
}
