// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestBuiltinAreValid(t *testing.T) {
	for _, name := range Names() {
		m, err := Load(DefaultArch, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.Doc == "" {
			t.Errorf("%s has no description", name)
		}
		for _, n := range m.Nodes {
			fds := make([]int, len(m.LinkEnds(n)))
			for _, accel := range []string{"tcg", "icount", "kvm"} {
				if _, err := m.QEMU(n, accel, fds); err != nil {
					t.Errorf("%s, node %s: %v", name, n.Name, err)
				}
			}
		}
	}
	if Builtin(DefaultArch)[0].Name != "default" {
		t.Errorf("the first machine is %s, not the default", Builtin(DefaultArch)[0].Name)
	}
}

// A machine written as JSON is the same machine.
func TestJSON(t *testing.T) {
	for _, want := range Builtin(DefaultArch) {
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "m.json")
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := Load(DefaultArch, file)
		if err != nil {
			t.Errorf("%s: %v", want.Name, err)
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", want.Name, got, want)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	if _, err := Load(DefaultArch, "nonesuch"); err == nil || !strings.Contains(err.Error(), "default") {
		t.Errorf("unknown machine: %v, want the names there are", err)
	}
	for text, want := range map[string]string{
		`{"Name":"m"}`:            "no nodes",
		`{"Name":"m","Nodse":[]}`: "Nodse",
		`{"Name":"m","Nodes":[{"Name":"a"},{"Name":"a"}]}`:                                                                                             "used twice",
		`{"Name":"m","Nodes":[{"Name":"a","IOMMU":"x"}]}`:                                                                                              "IOMMU",
		`{"Name":"m","Nodes":[{"Name":"a","RDMA":[{"Name":"r","Kind":"rxe","Netdev":"eth7"}]}]}`:                                                       "eth7",
		`{"Name":"m","Nodes":[{"Name":"a"}],"Links":[{"Ends":[{"Node":"a","Driver":"d","Interface":"i"},{"Node":"b","Driver":"d","Interface":"i"}]}]}`: `unknown node "b"`,
		`{"Name":"m","Nodes":[{"Name":"a","Devices":[{"ID":"x"}]}]}`:                                                                                   "without a driver",
		`{"Name":"m","Nodes":[{"Name":"a","Interfaces":[{"Name":"v","Kind":"veth"}]}]}`:                                                                "peer",
		`not json`: "invalid character",
	} {
		file := filepath.Join(t.TempDir(), "m.json")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(DefaultArch, file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", text, err, want)
		}
	}
}

// The devices of a software GPU behind a switch become QEMU's options, in the order of
// the description.
func TestQEMU(t *testing.T) {
	m := Machine{Name: "switch", Nodes: []Node{{
		Name: "vm", CPU: "EPYC", CPUs: 4, MemoryMiB: 1024, IOMMU: "translate",
		KernelArgs: []string{"pci=disable_acs_redir="},
		Objects:    []Device{{Driver: "memory-backend-memfd", ID: "vram", Props: map[string]string{"size": "64M", "share": "on"}}},
		Devices: []Device{
			{Driver: "pcie-root-port", ID: "rp1", Props: map[string]string{"chassis": "1", "slot": "1"}},
			{Driver: "ivshmem-plain", Bus: "rp1", Props: map[string]string{"memdev": "vram", "x": "a,b"}},
		},
	}}}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	args, err := m.QEMU(m.Nodes[0], "tcg", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(args, " ")
	want := "-nodefaults -no-user-config -display none -no-reboot -machine q35,kernel-irqchip=split " +
		"-accel tcg,thread=multi -cpu EPYC -smp 4 -m 1024M -device intel-iommu,intremap=on,caching-mode=on " +
		"-object memory-backend-memfd,id=vram,share=on,size=64M " +
		"-device pcie-root-port,id=rp1,chassis=1,slot=1 -device ivshmem-plain,bus=rp1,memdev=vram,x=a,,b"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := strings.Join(m.Cmdline(m.Nodes[0]), " "), "intel_iommu=on iommu=nopt pci=disable_acs_redir="; got != want {
		t.Errorf("kernel arguments %q, want %q", got, want)
	}
	if args, err := m.QEMU(m.Nodes[0], "icount", nil); err != nil || !strings.Contains(strings.Join(args, " "), "-accel tcg,thread=single -icount shift=0 ") {
		t.Errorf("counting instructions: %v, %v", args, err)
	}
	if _, err := m.QEMU(m.Nodes[0], "hvf", nil); err == nil {
		t.Error("an unknown accelerator: no error")
	}
}

func TestLinks(t *testing.T) {
	m, err := Load(DefaultArch, "pair")
	if err != nil {
		t.Fatal(err)
	}
	var macs []string
	for _, n := range m.Nodes {
		args, err := m.QEMU(n, "tcg", []int{7})
		if err != nil {
			t.Fatal(err)
		}
		ifs := m.Guest(n)
		if len(ifs) != 1 || ifs[0].Name != "eth0" || len(ifs[0].Addresses) != 1 {
			t.Fatalf("node %s sets up %+v", n.Name, ifs)
		}
		macs = append(macs, ifs[0].MAC)
		text := strings.Join(args, " ")
		for _, part := range []string{"-netdev socket,id=link0,fd=7", "virtio-net-pci,mac=" + ifs[0].MAC + ",netdev=link0"} {
			if !strings.Contains(text, part) {
				t.Errorf("node %s lacks %q: %s", n.Name, part, text)
			}
		}
		if _, err := m.QEMU(n, "tcg", nil); err == nil {
			t.Error("a link without a descriptor: no error")
		}
	}
	if macs[0] == macs[1] {
		t.Errorf("both ends have the address %s", macs[0])
	}
}
