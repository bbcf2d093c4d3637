// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/pciaddr"
)

func dumpFile(t testing.TB, all any) string {
	t.Helper()
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dump.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A dump of rdma_topo has the machine's tree and ACS. The rest is unknown.
func TestDumpOfRDMATopo(t *testing.T) {
	root := bad().Write(t)
	file := dumpFile(t, testenv.RDMATopoDump(t, root))
	r := command("topo", "--wide", "--snapshot", file)
	if r.status != cli.ExitOK || r.err != "" {
		t.Errorf("%+v", r)
	}
	// The tree is that of the machine, but for what the file does not have.
	lacking := regexp.MustCompile(`, (32.0 GT/s x16|IOMMU \w+( group \d+)?|node \d|BAR 0 \w+)|(?:nvidia|\(driver unknown\)) `)
	tree := func(text string) string {
		_, text, _ = strings.Cut(text, "\npci")
		text, _, _ = strings.Cut(text, "\n\nGPU")
		return lacking.ReplaceAllString(text, "")
	}
	whole := command("topo", "--wide", "--root", root)
	if got, want := tree(r.out), tree(whole.out); got != want || !strings.Contains(got, "ACS request redirect") {
		t.Errorf("%s\n%s", got, want)
	}
	// Without kernel, processor and host bridges no pair is direct.
	if r := command("--snapshot", file, "--skip", "all"); r.status != cli.ExitUnavailable || !strings.Contains(r.out, "0 direct") {
		t.Errorf("%+v", r)
	}
	m := machine.Open(root)
	a, _ := pciaddr.Parse("0000:13:00.0")
	b, _ := pciaddr.Parse("0000:14:00.0")
	if d := p2pdma.Decide(m, a, &b); len(d.Redirects) != 2 {
		t.Error(d)
	}
}

// No check passes for a dump because a file is absent from it.
func TestDumpPassesNothingItDoesNotHave(t *testing.T) {
	root := testenv.Machines["small-mi300"]().Write(t)
	var d struct{ Result result.Run }
	if err := json.Unmarshal([]byte(command("--json", "--snapshot", dumpFile(t, testenv.RDMATopoDump(t, root))).out), &d); err != nil {
		t.Fatal(err)
	}
	var passed []string
	for _, f := range d.Result.Checks {
		if f.Result == "pass" && !slices.Contains(passed, f.ID) {
			passed = append(passed, f.ID)
		}
	}
	// These go by the tree, the configuration space and the IOMMU's groups, whose types no dump has.
	want := []string{
		"ENV-CFGSPACE", "ENV-NETNS", "P2P-ACS-LIST", "P2P-DIST", "ISO-ACS-SOURCE", "ISO-ACS-PORT", "ISO-ACS-QUIRK", "ISO-RO", "ISO-GROUP",
		"PCIE-MPS", "PCIE-MRRS", "PCIE-VMD", "NIC-PRESENT", "K8S-PCIEROOT",
	}
	if !slices.Equal(passed, want) {
		t.Errorf("%v pass, want %v", passed, want)
	}
}

// A dump has the cards of NICs and of their DMA functions, and the IOMMU's groups: the tree is the
// machine's. A dump of a version that has neither says nothing about them.
func TestDumpOfDataDirect(t *testing.T) {
	all := testenv.Corpus(t)
	tray := all[slices.IndexFunc(all, func(c testenv.CorpusMachine) bool { return c.Name == "case-07-gb300-data-direct" })]
	root := tray.Tree.Write(t)
	functions := testenv.RDMATopoDump(t, root)
	r := command("topo", "--snapshot", dumpFile(t, functions))
	if !strings.Contains(r.out, "DMA function of mlx5_0") || strings.Contains(r.out, "IOMMU none") {
		t.Errorf("%+v", r)
	}
	for _, f := range functions {
		delete(f, "vpd")
		delete(f, "iommu_group")
	}
	r = command("topo", "--snapshot", dumpFile(t, functions))
	if strings.Contains(r.out, "DMA function of mlx5_0") || strings.Contains(r.out, "IOMMU none") || strings.Contains(r.out, " group ") {
		t.Errorf("%+v", r)
	}
}

func TestBrokenDumps(t *testing.T) {
	good := testenv.RDMATopoDump(t, testenv.Machines["small-hgx"]().Write(t))
	for what, change := range map[string]func(d map[string]any){
		"a path that leads out":  func(d map[string]any) { d["realpath"] = "/sys/devices/../../etc/0000:01:00.0" },
		"another path":           func(d map[string]any) { d["realpath"] = "/etc/0000:01:00.0" },
		"no address":             func(d map[string]any) { d["realpath"] = "/sys/devices/pci0000:00/x" },
		"no modalias":            func(d map[string]any) { delete(d, "modalias") },
		"no base64":              func(d map[string]any) { d["config"] = "%" },
		"no zlib":                func(d map[string]any) { d["config"] = "aGVsbG8=" },
		"a name that leads out":  func(d map[string]any) { d["subsystems"] = map[string]any{"infiniband": []string{"../../../x"}} },
		"a node that is a text":  func(d map[string]any) { d["numa_node"] = "x" },
		"a group that is a text": func(d map[string]any) { d["iommu_group"] = "x" },
		"vpd without base64":     func(d map[string]any) { d["vpd"] = "%" },
		"vpd that is too large":  func(d map[string]any) { d["vpd"] = testenv.Deflated(make([]byte, 32<<10+1)) },
		"another form of entry":  func(d map[string]any) { d["subsystems"] = 7 },
	} {
		d := map[string]any{}
		for k, v := range good[3] {
			d[k] = v
		}
		change(d)
		if r := command("--snapshot", dumpFile(t, []any{good[0], d})); r.status != cli.ExitUsage || r.err == "" {
			t.Errorf("%s: %+v", what, r)
		}
	}
	for _, text := range []string{"[", "[1]", "[]x", "[{}]"} {
		file := filepath.Join(t.TempDir(), "dump")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := command("--snapshot", file); r.status == cli.ExitOK {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

// A dump without a device is an error, and no machine without a GPU.
func TestDumpOfNothing(t *testing.T) {
	for _, text := range []string{"[]", "[ ]\n", "\n[\n]"} {
		file := filepath.Join(t.TempDir(), "dump")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--snapshot", file}, {"topo", "--snapshot", file}} {
			r := command(args...)
			if r.status != cli.ExitUsage || r.out != "" || !strings.Contains(r.err, "a dump of rdma_topo that names no device: one for each PCI function was expected") {
				t.Errorf("%q, %q: %+v", text, args, r)
			}
		}
	}
}
