// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every device of a topology that tests look for has a place that is known
// beforehand, and no two devices have the same.
func TestTopologyPlaces(t *testing.T) {
	wanted := regexp.MustCompile(`^(gpu|nic|edu|nvme)[0-9]$`)
	for _, m := range topologies(platforms[DefaultArch]) {
		n := m.Nodes[0]
		paths, taken := n.PCIPaths(), map[string]string{}
		for _, d := range n.Devices {
			p := paths[d.ID]
			if wanted.MatchString(d.ID) && p == nil {
				t.Errorf("%s: the place of %s is not known", m.Name, d.ID)
			}
			if at := strings.Join(p, "/"); p != nil && taken[at] != "" {
				t.Errorf("%s: %s and %s are both at %s", m.Name, taken[at], d.ID, at)
			} else {
				taken[at] = d.ID
			}
		}
		if paths["gpu0"] == nil || paths["nic0"] == nil || paths["edu0"] == nil {
			t.Errorf("%s lacks a GPU, a NIC or an engine: %v", m.Name, paths)
		}
		if m.Nodes[0].RDMA[0] != (RDMA{Name: "rxe0", Kind: "rxe", Netdev: "nic0"}) {
			t.Errorf("%s: the first RDMA device is %+v", m.Name, m.Nodes[0].RDMA[0])
		}
	}
}

func TestPCIPaths(t *testing.T) {
	n := Node{Devices: []Device{
		{Driver: "virtio-gpu-pci", ID: "anywhere"},
		{Driver: "pcie-root-port", ID: "rp", Bus: "pcie.0", Props: map[string]string{"addr": "0x1a"}},
		{Driver: "x3130-upstream", ID: "us", Bus: "rp"},
		{Driver: "xio3130-downstream", ID: "dp", Bus: "us", Props: map[string]string{"addr": "3"}},
		{Driver: "xio3130-downstream", ID: "dp-somewhere", Bus: "us"},
		{Driver: "edu", ID: "near", Bus: "dp"},
		{Driver: "edu", ID: "second", Bus: "dp", Props: map[string]string{"addr": "0.1"}},
		{Driver: "edu", ID: "ninth", Bus: "dp", Props: map[string]string{"addr": "0.8"}},
		{Driver: "edu", ID: "lost", Bus: "dp-somewhere"},
		{Driver: "pxb-pcie", ID: "px", Props: map[string]string{"bus_nr": "0x80"}},
		{Driver: "pcie-root-port", ID: "far-port", Bus: "px", Props: map[string]string{"addr": "1"}},
		{Driver: "edu", ID: "far", Bus: "far-port"},
	}}
	want := map[string][]string{
		"rp":       {"pci0000:00", "1a.0"},
		"us":       {"pci0000:00", "1a.0", "00.0"},
		"dp":       {"pci0000:00", "1a.0", "00.0", "03.0"},
		"near":     {"pci0000:00", "1a.0", "00.0", "03.0", "00.0"},
		"second":   {"pci0000:00", "1a.0", "00.0", "03.0", "00.1"},
		"far-port": {"pci0000:80", "01.0"},
		"far":      {"pci0000:80", "01.0", "00.0"},
	}
	if got := n.PCIPaths(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestVariations(t *testing.T) {
	m, err := Load(DefaultArch, "switch-acs+EPYC+iommu+noredir+vram=8G")
	if err != nil {
		t.Fatal(err)
	}
	args, err := m.QEMU(m.Nodes[0], "tcg", nil)
	if err != nil {
		t.Fatal(err)
	}
	if line := strings.Join(args, " "); !strings.Contains(line, "-cpu EPYC ") || !strings.Contains(line, "id=vram0,share=on,size=8G") {
		t.Errorf("QEMU's options: %s", line)
	}
	if got, want := strings.Join(m.Cmdline(m.Nodes[0]), " "), "intel_iommu=on iommu=nopt "+noACSRedirect; got != want {
		t.Errorf("kernel arguments %q, want %q", got, want)
	}
	if m.Name != "switch-acs+EPYC+iommu+noredir+vram=8G" {
		t.Errorf("its name is %q", m.Name)
	}
	// With an IOMMU the kernel makes ports redirect, and the remedy is all that is
	// added to what it is told.
	before, err1 := Load(DefaultArch, "nested+Nehalem+iommu")
	after, err2 := Load(DefaultArch, "nested+Nehalem+iommu+remedy")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	told := before.Cmdline(before.Nodes[0])
	if strings.Contains(strings.Join(told, " "), "pci=") || !slices.Equal(after.Cmdline(after.Nodes[0]), append(told, acsRemedy)) {
		t.Errorf("%v, and with the remedy %v", told, after.Cmdline(after.Nodes[0]))
	}
	cold, err := Load(DefaultArch, "switch+cold")
	if err != nil {
		t.Fatal(err)
	}
	if n := cold.Nodes[0]; len(n.Modules)+len(n.Interfaces)+len(n.RDMA) != 0 || len(n.Devices) == 0 {
		t.Errorf("cold: %+v", n)
	}
	if m, err := Load(DefaultArch, "switch"); err != nil || len(m.Nodes[0].Modules) == 0 || len(m.Nodes[0].RDMA) == 0 {
		t.Errorf("after it: %+v, %v", m, err)
	}
	// The machine itself is as it was.
	if m, err := Load(DefaultArch, "switch-acs"); err != nil || !slices.Contains(m.Nodes[0].KernelArgs, acsRedirect) || m.Nodes[0].CPU != "max" {
		t.Errorf("after a variation: %+v, %v", m, err)
	}
	for name, want := range map[string]string{
		"switch+epyc": "EPYC, ", "switch+": "variation", "nonesuch+EPYC": `machine "nonesuch"`,
		"switch+noredir": "no redirecting switch", "fabric+EPYC+iommu+remedy": "is nested's", "nested+EPYC+remedy": "is nested's", "default+vram=1G": "no GPU with memory", "switch+vram=1T": "vram=SIZE",
	} {
		if _, err := Load(DefaultArch, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, want)
		}
	}
}

func TestNUMA(t *testing.T) {
	n := Node{Name: "vm", CPUs: 5, MemoryMiB: 1000, NUMA: 3}
	want := "-object memory-backend-ram,id=numa0,size=333M -numa node,nodeid=0,cpus=0-0,memdev=numa0 " +
		"-object memory-backend-ram,id=numa1,size=333M -numa node,nodeid=1,cpus=1-1,memdev=numa1 " +
		"-object memory-backend-ram,id=numa2,size=334M -numa node,nodeid=2,cpus=2-4,memdev=numa2"
	if got := strings.Join(n.numa(n.MemoryMiB), " "); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	n.CPUs, n.NUMA = 1, 2
	want = "-object memory-backend-ram,id=numa0,size=500M -numa node,nodeid=0,cpus=0-0,memdev=numa0 " +
		"-object memory-backend-ram,id=numa1,size=500M -numa node,nodeid=1,memdev=numa1"
	if got := strings.Join(n.numa(n.MemoryMiB), " "); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for nodes, want := range map[int]string{3: "", -1: "-1 NUMA nodes", 9: "9 NUMA nodes; at most 8"} {
		m := Machine{Name: "m", Nodes: []Node{{Name: "vm", NUMA: nodes}}}
		if err := m.Validate(); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d nodes: %v", nodes, err)
		}
	}
}
