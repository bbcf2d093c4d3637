// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// lspciText is one of the texts of package lspci.
func lspciText(name string) string { return "../../p2p/lspci/testdata/" + name }

// What lspci printed of a machine with two switches, one of which redirects.
func TestLspci(t *testing.T) {
	r := command("--lspci", lspciText("dgx.txt"))
	if r.status == cli.ExitOK || r.err != "" {
		t.Errorf("status %d, %s", r.status, r.err)
	}
	golden(t, "lspci.txt", r.out)
	beside := command("--lspci", lspciText("dgx.txt"), "--lspci-tree", lspciText("dgx-tree.txt"))
	if unflagged(beside.out) != unflagged(r.out) {
		t.Errorf("the tree of the same machine changes the report:\n%s", beside.out)
	}
}

func TestLspciTopo(t *testing.T) {
	r := command("topo", "--wide", "--lspci", lspciText("dgx.txt"))
	for _, want := range []string{
		"lspci names no RDMA device",
		"0000:17:01.0 downstream port 1000:c030, ACS request redirect, completion redirect",
		"0000:19:00.0 GPU nvidia 10de:2330, ACS does not redirect, 32.0 GT/s x16, IOMMU unknown group 32, node 0",
		"0000:18:00.0 NIC rdma-0000:18:00.0 (mlx5_core) 15b3:1021",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("topo does not say %q:\n%s", want, r.out)
		}
	}
	if r.status != cli.ExitOK || r.err != "" {
		t.Errorf("status %d, %s", r.status, r.err)
	}
	for line := range strings.Lines(r.out) {
		if strings.HasPrefix(line, "- ") && len([]rune(line)) > 101 {
			t.Errorf("%q is longer than 100 columns", line)
		}
	}
	// A guest's functions are on a root bus that only the tree names.
	for args, status := range map[string]int{"guest.txt": cli.ExitUnavailable, "guest.txt guest-tree.txt": cli.ExitOK} {
		text, tree, both := strings.Cut(args, " ")
		line := []string{"topo", "--lspci", lspciText(text)}
		if both {
			line = append(line, "--lspci-tree", lspciText(tree))
		}
		if r := command(line...); r.status != status || strings.Contains(r.out, "does not say what leads to bus 0000:10") == both {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

func lspciResult(t *testing.T, args ...string) (result.Run, outcome) {
	t.Helper()
	var d struct{ Result result.Run }
	r := command(append([]string{"--json"}, args...)...)
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		t.Fatal(err, r)
	}
	return d.Result, r
}

// No pair is direct, with the kernel and its configuration named as well: what lspci
// does not print is unknown.
func TestLspciIsNeverDirect(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(testenv.WithP2PDMA), 0o600); err != nil {
		t.Fatal(err)
	}
	texts, err := filepath.Glob(lspciText("*.txt"))
	if err != nil || len(texts) < 8 {
		t.Fatal(texts, err)
	}
	for _, text := range texts {
		if strings.HasSuffix(text, "-tree.txt") {
			continue
		}
		for _, args := range [][]string{{"--lspci", text}, {"--lspci", text, "--kernel", "7.3.0", "--config", config}} {
			d, r := lspciResult(t, args...)
			if d.Summary.Direct != 0 || r.status == cli.ExitOK || len(d.Machine.Notes) == 0 {
				t.Errorf("%q: %+v, status %d, %q", args, d.Summary, r.status, d.Machine.Notes)
			}
			if d.Summary.Total() == 0 && !strings.HasSuffix(text, "names.txt") {
				t.Errorf("%q: no pair: %s", args, r.out)
			}
		}
	}
}

// No check passes because a file is absent that lspci prints nothing of.
func TestLspciPassesNothingItDoesNotHave(t *testing.T) {
	d, _ := lspciResult(t, "--lspci", lspciText("dgx.txt"))
	var passed []string
	for _, f := range d.Checks {
		if f.Result == "pass" && !slices.Contains(passed, f.ID) {
			passed = append(passed, f.ID)
		}
	}
	// These go by the tree, the registers, the regions, and the numbers of nodes and groups.
	may := []string{
		"ENV-CFGSPACE", "P2P-ACS-LIST", "P2P-WHITELIST", "P2P-DIST", "ISO-ACS-SOURCE", "ISO-ACS-PORT", "ISO-ACS-QUIRK", "ISO-ATS", "ISO-RO", "ISO-GROUP",
		"PCIE-LINK", "PCIE-LINK-IDLE", "PCIE-MRRS", "PCIE-REBAR", "PCIE-BAR-ASSIGNED", "PCIE-NUMA", "PCIE-VMD", "NIC-DATADIRECT", "K8S-PCIEROOT",
	}
	for _, id := range passed {
		if !slices.Contains(may, id) {
			t.Errorf("%s passes, and lspci prints nothing that it goes by", id)
		}
	}
	if !slices.Contains(passed, "PCIE-REBAR") || !slices.Contains(passed, "ISO-ACS-PORT") {
		t.Errorf("%q pass", passed)
	}
	// Without root there is less.
	d, _ = lspciResult(t, "--lspci", lspciText("unprivileged.txt"))
	for _, f := range d.Checks {
		if f.Result == "pass" && (strings.HasPrefix(f.ID, "ISO-ACS") && f.ID != "ISO-ACS-QUIRK" || f.ID == "P2P-ACS-LIST" || f.ID == "PCIE-LINK" || f.ID == "PCIE-REBAR") {
			t.Errorf("%s passes: %s", f.ID, f.Read)
		}
	}
}

func TestLspciMistakes(t *testing.T) {
	good, dir := lspciText("dgx.txt"), t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--lspci", file("empty", "")}, "it is empty; expected the output of `sudo lspci -vvvnn -D`"},
		{[]string{"--lspci", file("garbage", "no such thing\n")}, "no line begins a function"},
		{[]string{"--lspci", file("topo", "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV18\tPIX\n")}, "it is of nvidia-smi topo -m, which has no PCI functions"},
		{[]string{"--lspci", lspciText("dgx-tree.txt")}, "give that beside the other text, by --lspci-tree"},
		{[]string{"--lspci", good, "--lspci-tree", good}, "no line begins a tree"},
		{[]string{"--lspci", good, "--lspci-tree", lspciText("guest-tree.txt")}, ""}, // another machine's, which contradicts nothing
		{[]string{"--lspci", good, "--lspci-tree", file("tree", "-[0000:18]---00.0\n")}, "the two are not of one machine"},
		{[]string{"--lspci", dir}, "is a directory"},
		{[]string{"--lspci", filepath.Join(dir, "none")}, "no such file"},
		{[]string{"--lspci", ""}, "--lspci"},
		{[]string{"--lspci-tree", good}, "give --lspci FILE beside it"},
		{[]string{"--lspci", good, "--snapshot", good}, "each describe a machine"},
		{[]string{"--lspci", good, "--root", dir}, "leave out --root, --sysfs and --proc"},
		{[]string{"--lspci", good, "--live"}, "--live is for this machine"},
		{[]string{"--lspci", good, "--pid", "1"}, "--pid is a process of this machine"},
		{[]string{"--lspci", "-", "--lspci-tree", "-"}, "can read the standard input"},
		{[]string{"--lspci", "-", "--baseline", "-"}, "can read the standard input"},
		{[]string{"serve", "--lspci", good}, "serve has no --lspci"},
		{[]string{"snapshot", file("s", ""), "--lspci", good}, "snapshot has no --lspci"},
	} {
		r := command(c.args...)
		if c.want == "" {
			if r.status == cli.ExitUsage {
				t.Errorf("%q: %+v", c.args, r)
			}
			continue
		}
		if r.status != cli.ExitUsage || r.out != "" || !strings.Contains(r.err, c.want) {
			t.Errorf("%q: %+v, want %q", c.args, r, c.want)
		}
		// A file with other contents than its flag needs is no mistake on the command line.
		if strings.Contains(c.want, "expected the output") && strings.Contains(r.err, "--help") {
			t.Errorf("%q: %s", c.args, r.err)
		}
	}
}

// The text can come by a pipe: `ssh node sudo lspci -vvvnn -D | p2pcheck --lspci -`.
func TestLspciOfStandardInput(t *testing.T) {
	want := command("--lspci", lspciText("domains.txt"), "--skip", "all")
	want.out = strings.Replace(unflagged(want.out), "what it rests on:", "what it rests on, with the same input:", 1)
	stdin(t, lspciText("domains.txt"))
	if got := command("--lspci", "-", "--skip", "all"); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Each link that is not known says why, or on which link it depends.
func TestWhyOfLspci(t *testing.T) {
	r := command("why", "0000:19:00.0", "rdma-0000:18:00.0", "--lspci", lspciText("dgx.txt"))
	for _, want := range []string{"attach and leaves the buffer in the GPU\n           it depends on the link \"route\"", "which p2pcheck\n                   snapshot takes along"} {
		if r.status != cli.ExitUnavailable || !strings.Contains(r.out, want) {
			t.Errorf("%q is not there: %d, %s", want, r.status, r.out)
		}
	}
	if strings.Contains(r.out, "--nic rdma-") {
		t.Error(r.out)
	}
}
