// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// corpusOf writes a corpus of one machine m, with files beside it, and reads it.
func corpusOf(t *testing.T, tree, machine string, others ...string) ([]CorpusMachine, error) {
	t.Helper()
	dir := TreeDir(t)
	WriteFile(t, filepath.Join(dir, "m/tree.txt"), tree)
	if machine != "" {
		WriteFile(t, filepath.Join(dir, "m/machine.json"), machine)
	}
	for i := 0; i < len(others); i += 2 {
		WriteFile(t, filepath.Join(dir, others[i]), others[i+1])
	}
	return readCorpus(dir)
}

const (
	corpusGPU = `
release 6.8.0
pci0000:10
  0000:10:01.0 class=0x060400
    0000:11:00.0 class=0x030200 id=10de:2330 model=NVIDIA_H100 bar1=128G@0x200000000000
    0000:12:00.0 class=0x020000 rdma:mlx5_0
pci0000:20
  0000:20:01.0 class=0x060400
    0000:21:00.0 class=0x020000 rdma:mlx5_1
ports mlx5_* Ethernet 400
`
	corpusHead   = `{"title": "t", "origin": "case", "sources": {"a": "b"}, `
	corpusLabels = corpusHead + `"pairs": [{"gpu": "*", "nic": "*", "answer": "direct", "mark": "observed", "reason": "r", "source": "a: x", "where": "one switch"}],
		"unlabelled": [{"gpu": "*", "nic": "*", "reason": "u"}]}`
)

// TestCorpusLabels: a pair has the first label that matches it and its place.
func TestCorpusLabels(t *testing.T) {
	machines, err := corpusOf(t, corpusGPU, corpusLabels)
	if err != nil {
		t.Fatal(err)
	}
	want := []CorpusPair{
		{"0000:11:00.0", "mlx5_0", "direct", "observed", "r", "a: x", true},
		{"0000:11:00.0", "mlx5_1", "", "", "u", "", true},
	}
	if got := machines[0].Pairs; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("pairs %+v, want %+v", got, want)
	}
	if got, want := corpusPlace("pci0000:10/a/b", "pci0000:10/c/d"), "one host bridge"; got != want {
		t.Errorf("two root ports: %q, want %q", got, want)
	}
}

// TestCorpusTree: the directives make these files.
func TestCorpusTree(t *testing.T) {
	machines, err := corpusOf(t, "include base\n"+corpusGPU+`
config CONFIG_PCI_P2PDMA=y CONFIG_HSA_AMD_P2P=n
cpu vendor=GenuineIntel family=6 model=143 flags=hypervisor
nvidia open 580.95.05
module mlx5_ib -
define more = driver:mlx5_core link=5x16/6x8 card=one
set 0000:12:00.0 @more acs=0x1d
set class=0x060400 type=4
groups identity
aer
file proc/self/environ = A=1\x00B="2"\x00
drop dev/*
`, corpusLabels, "common/base.txt", "file dev/kmsg = x\nfile proc/self/limits = y\n")
	if err != nil {
		t.Fatal(err)
	}
	root := machines[0].Tree.Write(t)
	gpu, nic := "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/", "sys/devices/pci0000:10/0000:10:01.0/0000:12:00.0/"
	for name, want := range map[string]string{
		"proc/sys/kernel/osrelease":                        "6.8.0\n",
		"boot/config-6.8.0":                                "CONFIG_PCI_P2PDMA=y\n# CONFIG_HSA_AMD_P2P is not set\n" + ConfigEnd,
		"proc/cpuinfo":                                     "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: fpu hypervisor\n\n",
		"proc/driver/nvidia/version":                       "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n",
		"sys/module/nvidia/taint":                          "OE\n",
		"sys/module/mlx5_ib/taint":                         "\n",
		"proc/self/limits":                                 "y\n",
		"proc/self/environ":                                "A=1\x00B=\"2\"\x00",
		gpu + "vendor":                                     "0x10de\n",
		gpu + "iommu_group/type":                           "identity\n",
		gpu + "aer_dev_fatal":                              "TOTAL_ERR_FATAL 0\n",
		nic + "current_link_speed":                         "32.0 GT/s PCIe\n",
		nic + "max_link_width":                             "8\n",
		nic + "infiniband/mlx5_0/ports/1/state":            "4: ACTIVE\n",
		nic + "vpd":                                        "\x90\x0c\x00V3\x03oneVU\x03one\x78",
		"sys/class/infiniband_verbs/uverbs1/ibdev":         "mlx5_1\n",
		"sys/class/infiniband/mlx5_1/ports/1/link_layer":   "Ethernet\n",
		"proc/driver/nvidia/gpus/0000:11:00.0/information": "Model: \t\t NVIDIA H100\nBus Location: \t 0000:11:00.0\nDevice Minor: \t 0\n",
	} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(root, "dev/kmsg")); !os.IsNotExist(err) {
		t.Errorf("a dropped file is there: %v", err)
	}
	resource, _ := os.ReadFile(filepath.Join(root, gpu, "resource"))
	if want := "0x0000200000000000 0x0000201fffffffff 0x000000000014220c\n"; !strings.Contains(string(resource), want) {
		t.Errorf("resource %q does not have %q", resource, want)
	}
}

// TestCorpusRefuses: each error in a machine is reported.
func TestCorpusRefuses(t *testing.T) {
	label := func(s string) string { return corpusHead + `"pairs": [` + s + `]}` }
	const good = `"gpu": "*", "nic": "*", "answer": "direct", "mark": "observed", "reason": "r", "source": "a: x"`
	const said = `"gpu": "*", "dma_buf": "yes", "mark": "observed", "reason": "r", "source": "a: x"`
	gpus := func(s string) string { return corpusHead + `"pairs": [{` + good + `}], "gpus": [` + s + `]}` }
	for _, c := range []struct{ name, tree, machine, want string }{
		{"directive", corpusGPU + "frob x\n", corpusLabels, `unknown directive "frob"`},
		{"attribute", corpusGPU + "set * frob=1\n", corpusLabels, `unknown attribute "frob"`},
		{"address", "pci0000:00\n  0000:00:1f.9 class=0\n", corpusLabels, "is no PCI address"},
		{"twice", corpusGPU + "pci0000:30\n  0000:11:00.0 class=0\n", corpusLabels, "is there already"},
		{"depth", "pci0000:00\n    0000:00:01.0 class=0\n", corpusLabels, "is below nothing"},
		{"number", corpusGPU + "set * acs=x\n", corpusLabels, "attribute acs"},
		{"set", corpusGPU + "set 0000:99:* acs=1\n", corpusLabels, "no function is 0000:99:*"},
		{"drop", corpusGPU + "drop x\n", corpusLabels, "nothing is x"},
		{"define", corpusGPU + "set * @x\n", corpusLabels, `nothing is defined as "x"`},
		{"ports", corpusGPU + "ports y Ethernet 1\n", corpusLabels, "no RDMA device has such a name"},
		{"layer", corpusGPU + "ports mlx5_0 Token 1\n", corpusLabels, `link layer "Token"`},
		{"option", corpusGPU + "config PCI=y\n", corpusLabels, "is not CONFIG_NAME=VALUE"},
		{"outside", corpusGPU + "file ../x = y\n", corpusLabels, "file wants PATH = TEXT"},
		{"itself", "machine m\n", corpusLabels, "includes itself"},
		{"physical", corpusGPU + "set 0000:12:00.0 physfn=0000:99:00.0\n", corpusLabels, "no function is 0000:99:00.0"},
		{"no machine", corpusGPU, "", "machine.json"},
		{"field", corpusGPU, corpusHead + `"frob": 1}`, "unknown field"},
		{"origin", corpusGPU, `{"title": "t", "origin": "x", "sources": {"a": "b"}}`, `origin "x" is none of`},
		{"no source", corpusGPU, `{"title": "t", "origin": "case"}`, "no source"},
		{"no label", corpusGPU, corpusHead[:len(corpusHead)-2] + "}", "has no label and is not listed"},
		{"no pair", corpusGPU, label(`{` + good + `}, {` + strings.Replace(good, `"nic": "*"`, `"nic": "mlx5_7"`, 1) + `}`), "the tree has no such pair"},
		{"shadowed", corpusGPU, label(`{` + good + `}, {` + good + `}`), "others took all of them"},
		{"answer", corpusGPU, label(`{` + strings.Replace(good, `direct`, `yes`, 1) + `}`), `answer "yes" is none of`},
		{"mark", corpusGPU, label(`{` + strings.Replace(good, `observed`, `felt`, 1) + `}`), `mark "felt" is none of`},
		{"source", corpusGPU, label(`{` + strings.Replace(good, `a: x`, `c: x`, 1) + `}`), `source "c: x" is not`},
		{"place", corpusGPU, label(`{` + strings.Replace(good, `a: x`, `a`, 1) + `}`), `source "a" is not`},
		{"where", corpusGPU, label(`{"where": "near", ` + good + `}`), `where "near" is none of`},
		{"readable", corpusGPU, label(`{` + strings.Replace(good, `direct`, `unknown`, 1) + `}`), "readable is not false"},
		{"reason", corpusGPU, label(`{` + strings.Replace(good, `"r"`, `""`, 1) + `}`), "no reason"},
		{"library", corpusGPU, gpus(`{` + strings.Replace(said, `yes`, `perhaps`, 1) + `}`), `answer "perhaps" is neither`},
		{"no answer", corpusGPU, gpus(`{` + strings.Replace(said, `"dma_buf": "yes", `, ``, 1) + `}`), "no answer"},
		{"library's source", corpusGPU, gpus(`{` + strings.Replace(said, `a: x`, `c: x`, 1) + `}`), `source "c: x" is not`},
		{"no GPU", corpusGPU, gpus(`{` + strings.Replace(said, `*`, `0000:99:*`, 1) + `}`), "GPU 0000:99:*: the tree has none"},
		{"more", corpusGPU, corpusHead + `"unlabelled": [{` + good + `}]}`, "has more than a reason"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := corpusOf(t, c.tree, c.machine); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not have %q", err, c.want)
			}
		})
	}
}

// TestCorpus reads the whole corpus, and checks that a verdict of unknown for all pairs
// would be wrong for many of them.
func TestCorpus(t *testing.T) {
	machines := Corpus(t)
	direct, with, trees := 0, map[string]bool{}, 0
	for _, m := range machines {
		if m.Origin == "hwloc test suite" {
			trees++
		}
		for _, p := range m.Pairs {
			if p.Answer == "direct" && p.Mark != "constructed" && p.Readable {
				direct++
				with[m.Name] = true
			}
		}
	}
	if len(machines) < 60 || trees < 41 || direct < 150 || len(with) < 20 {
		t.Errorf("%d machines, %d of hwloc, %d pairs observed or documented as direct on %d machines; want 60, 41, 150, 20", len(machines), trees, direct, len(with))
	}
}
