// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/checks"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// What is said of machines of known shapes. A person has read each text.
func TestMachines(t *testing.T) {
	for name, status := range map[string]int{
		"hgx":          cli.ExitOK,
		"wrong-socket": cli.ExitOK,
		"grace":        cli.ExitOK,
		"mi300":        cli.ExitOK,
		"xe":           cli.ExitFailed,
		"flat-vm":      cli.ExitUnavailable,
	} {
		t.Run(name, func(t *testing.T) {
			tree := testenv.Machines[name]()
			r := run(tree, t, "--root", "ROOT")
			if r.status != status || r.err != "" {
				t.Errorf("status %d, want %d: %s", r.status, status, r.err)
			}
			topo := run(tree, t, "topo", "--root", "ROOT")
			golden(t, "machine-"+name+".txt", r.out+"\n"+topo.out)
		})
	}
}

func TestExplain(t *testing.T) {
	for _, id := range checkNames() {
		r := command("explain", id)
		if r.status != 0 || !strings.HasPrefix(r.out, id+": ") || !strings.Contains(r.out, "see: ") {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if r := command("explain", "net"); r.status != 0 || strings.Count(r.out, "at worst:") != 8 {
		t.Errorf("%+v", r)
	}
	if r := command("explain"); strings.Count(r.out, "at worst:") != len(checks.All()) {
		t.Errorf("%+v", r)
	}
	if r := command("explain", "NO-SUCH"); r.status != cli.ExitUsage || !strings.Contains(r.err, "PCIE, ") {
		t.Errorf("%+v", r)
	}
	var d struct{ Result explainResult }
	if err := json.Unmarshal([]byte(command("explain", "--json", "P2P-ACS-LIST").out), &d); err != nil || len(d.Result.Checks) != 1 || d.Result.Checks[0].Worst != "fail" {
		t.Error(d, err)
	}
}

// saved is the JSON of a machine.
func saved(t *testing.T, dir, name string, tree testenv.Tree) string {
	t.Helper()
	file := filepath.Join(dir, name+".json")
	if r := command("--json", "--output", file, "--root", tree.Write(t)); r.out != "" {
		t.Fatal(r)
	}
	return file
}

func TestDiffAndBaseline(t *testing.T) {
	dir := t.TempDir()
	good := saved(t, dir, "good", testenv.Machines["small-hgx"]())
	worse := saved(t, dir, "worse", bad())
	if r := command("diff", good, good); r.status != cli.ExitOK || r.out != "0 differences\n" {
		t.Errorf("%+v", r)
	}
	r := command("diff", good, worse)
	for _, want := range []string{"check NV-MODTYPE: fail, was pass", "check P2P-ACS-LIST 0000:13:00.0 -> mlx5_0: warn, was pass"} {
		if r.status != cli.ExitFailed || !strings.Contains(r.out, want) {
			t.Errorf("%q is not there: %+v", want, r)
		}
	}
	root := testenv.Machines["small-hgx"]().Write(t)
	if r := command("--baseline", good, "--root", root); r.status != cli.ExitOK || !strings.Contains(r.out, "0 differences") {
		t.Errorf("%+v", r)
	}
	// What is better is told, and is no failure.
	if r := command("--baseline", worse, "--root", root); r.status != cli.ExitOK || !strings.Contains(r.out, "better   check NV-MODTYPE: pass, was fail") || strings.Contains(r.out, " worse") {
		t.Errorf("%+v", r)
	}
	if r := command("--baseline", worse, "--root", root, "--format", "nagios"); r.status != 0 || !strings.HasPrefix(r.out, "P2PCHECK OK - 4 of 4 pairs direct |") {
		t.Errorf("%+v", r)
	}
	// What is worse has the first of it in the line.
	if r := command("--baseline", good, "--root", bad().Write(t), "--format", "nagios"); r.status != 2 || !strings.Contains(r.out, "; worse than its baseline: pair 0000:13:00.0 -> mlx5_0: refused, through the host bridge PIX, was direct, bus address PIX and 13 more") {
		t.Errorf("%+v", r)
	}
	// A device that came and one that went.
	less := testenv.Machines["small-hgx"]()
	less.Functions = strings.Replace(less.Functions, " rdma:mlx5_1", "", 1)
	if r := command("diff", good, saved(t, dir, "less", less)); r.status != cli.ExitFailed || !strings.Contains(r.out, "worse    nic mlx5_1: not there, was mlx5_core at 0000:16:00.0 (dynamic)") {
		t.Errorf("%+v", r)
	}
	for _, text := range []string{"", "{}", `{"schema":"p2pcheck/v1","command":"topo","result":{}}`, `{"schema":"p2pcheck/v1","command":"check"}`, `{"schema":"p2pcheck/v1","command":"check","result":{"pairs":[{"outcome":"odd"}]}}`,
		`{"schema":"p2pcheck/v2","command":"topo","result":{}}`, `{"schema":"p2pcheck/v2","command":"check"}`, `{"schema":"p2pcheck/v2","command":"check","result":{"pairs":[{"outcome":"odd","links":[{}]}]}}`, `{"schema":"p2pcheck/v2","command":"check","result":{"pairs":[{"outcome":"direct"}]}}`,
	} {
		file := filepath.Join(dir, "odd")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"diff", good, file}, {"--baseline", file, "--root", root}, {"report", file}, {"diff", good, dir}} {
			if r := command(args...); r.status != cli.ExitUsage || r.err == "" {
				t.Errorf("%q: %+v", text, r)
			}
		}
	}
}

// Checks of which one run says nothing are not compared: it was told to leave
// them out, or its p2pcheck has others.
func TestUncompared(t *testing.T) {
	dir := t.TempDir()
	root := testenv.Machines["small-hgx"]().Write(t)
	whole, part := filepath.Join(dir, "whole"), filepath.Join(dir, "part")
	command("--json", "-o", whole, "--root", root)
	command("--json", "-o", part, "--root", root, "--skip", "NET,KRN-BTF")
	for _, args := range [][]string{{"diff", whole, part}, {"diff", part, whole}, {"--baseline", part, "--root", root}} {
		r := command(args...)
		if r.status != cli.ExitOK || !strings.Contains(r.out, "0 differences") || !strings.Contains(r.out, "7 checks not compared: one of the two runs") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	// Nor what does not apply to one of two machines.
	without := testenv.Machines["small-hgx"]()
	without.Release = "6.18.1"
	r := command("diff", whole, saved(t, dir, "older", without))
	if strings.Contains(r.out, "skip") || !strings.Contains(r.out, "changed  machine kernel: 6.18.1") {
		t.Errorf("%+v", r)
	}
}

func TestChangeOf(t *testing.T) {
	of := func(name string) fact { return fact{name, goodness[name]} }
	for _, c := range [][3]string{
		{"pass", "fail", "worse"}, {"pass", "warn", "worse"}, {"warn", "fail", "worse"}, {"unknown", "fail", "worse"}, {"direct", "staged", "worse"}, {"unknown", "refused", "worse"},
		{"fail", "pass", "better"}, {"fail", "warn", "better"}, {"unknown", "pass", "better"}, {"unknown", "direct", "better"}, {"staged", "direct", "better"},
		{"pass", "unknown", "unknown"}, {"fail", "unknown", "unknown"}, {"unknown", "warn", "changed"}, {"refused", "staged", "changed"},
	} {
		if got := changeOf(of(c[0]), of(c[1]), true, true); got != c[2] {
			t.Errorf("%s after %s is %s, want %s", c[1], c[0], got, c[2])
		}
	}
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for i := range 3 {
		files = append(files, saved(t, dir, fmt.Sprintf("node%d", i), testenv.Machines["small-hgx"]()))
	}
	if r := command(append([]string{"report"}, files...)...); r.status != cli.ExitOK || !strings.Contains(r.out, "3 nodes, 1 kind of them") {
		t.Errorf("%+v", r)
	}
	// Not all that could not be read is in the result: the status has it.
	text, err := os.ReadFile(files[2])
	if err != nil {
		t.Fatal(err)
	}
	unread := filepath.Join(dir, "unread.json")
	if err := os.WriteFile(unread, bytes.Replace(text, []byte(`"exit_status": 0`), []byte(`"exit_status": 3`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := command("report", files[0], unread); r.status != cli.ExitUnavailable || !strings.Contains(r.out, "unknown") {
		t.Errorf("%+v", r)
	}
	files = append([]string{saved(t, dir, "broken", bad())}, files...)
	r := command(append([]string{"report"}, files...)...)
	if r.status != cli.ExitFailed {
		t.Error(r.status)
	}
	golden(t, "report.txt", r.out)
	var d struct{ Result reportResult }
	if err := json.Unmarshal([]byte(command(append([]string{"report", "--json"}, files...)...).out), &d); err != nil {
		t.Fatal(err)
	}
	if n := d.Result.Nodes; len(n) != 4 || n[0].Node != "broken" || n[0].Result != "fail" || len(n[0].Differs) == 0 || len(n[1].Differs) != 0 || d.Result.Like != "node0" {
		t.Errorf("%+v", d.Result)
	}
}

// A node whose file cannot be read hides nothing of the others, and is not good.
func TestReportOfBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir, "node0", testenv.Machines["small-hgx"]())
	if err := os.WriteFile(filepath.Join(dir, "node1.json"), []byte("ssh: connection refused\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := command("report", dir)
	if r.status != cli.ExitUnavailable || !strings.Contains(r.out, "2 nodes") || !strings.Contains(r.out, "its file cannot be read") || !strings.Contains(r.err, "node1.json") {
		t.Errorf("%+v", r)
	}
	var d struct{ Result reportResult }
	if err := json.Unmarshal([]byte(command("report", "--json", dir).out), &d); err != nil {
		t.Fatal(err)
	}
	if n := d.Result.Nodes; len(n) != 2 || n[0].Node != "node1" || n[0].Result != "unknown" || n[0].Error == "" || n[1].Node != "node0" || n[1].Result != "pass" || d.Result.Like != "node0" {
		t.Errorf("%+v", d.Result)
	}
	saved(t, dir, "node2", bad())
	if r := command("report", dir); r.status != cli.ExitFailed || !strings.Contains(r.out, "node2 differs from node0") {
		t.Errorf("%+v", r)
	}
	good := filepath.Join(dir, "node0.json")
	for _, args := range [][]string{{filepath.Join(dir, "node1.json")}, {good, good}, {t.TempDir()}, {filepath.Join(dir, "none")}} {
		if r := command(append([]string{"report"}, args...)...); r.status != cli.ExitUsage || r.err == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// What nodes have in common is told once, with those that have it.
func TestReportOfCauses(t *testing.T) {
	dir := t.TempDir()
	for i := range 12 {
		saved(t, dir, fmt.Sprintf("node%02d", i), testenv.Machines["small-hgx"]())
	}
	for i := range 10 {
		saved(t, dir, fmt.Sprintf("worse%d", i), bad())
	}
	less := testenv.Machines["small-hgx"]()
	less.Functions = strings.Replace(less.Functions, " rdma:mlx5_1", "", 1)
	saved(t, dir, "less", less)
	for _, name := range []string{"grace", "flat-vm", "mi300"} {
		saved(t, dir, name, testenv.Machines[name]())
	}
	r := command("report", dir)
	if r.status != cli.ExitFailed {
		t.Error(r.status)
	}
	golden(t, "report-fleet.txt", r.out)
}

// Among kinds of which there are equally many the best one is the norm, whatever
// it is called, and which that is stands there.
func TestReportOfEquals(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir, "a-bad", bad())
	good := saved(t, dir, "z-good", testenv.Machines["small-hgx"]())
	r := command("report", dir)
	if r.status != cli.ExitFailed || !strings.Contains(r.out, "DIFFERS FROM z-good\n") || !strings.Contains(r.out, "a-bad differs from z-good") || !strings.Contains(r.out, "no kind is that of most: compared with z-good") {
		t.Errorf("%+v", r)
	}
	if r := command("report", good); strings.Contains(r.out, "no kind") {
		t.Errorf("%+v", r)
	}
}

// A node that lost its GPUs is what differs, even if what is left of it fails nothing,
// or most nodes are like it.
func TestReportOfBareNodes(t *testing.T) {
	bare := testenv.Machines["small-hgx"]()
	bare.Functions = strings.ReplaceAll(bare.Functions, "class=0x030200", "class=0x010700")
	good := testenv.Machines["small-hgx"]()
	const most, equal = "2 kinds of them\n", "; no kind is that of most: compared with node0, the best of the largest\n"
	for name, c := range map[string]struct {
		nodes []testenv.Tree // the first is what the others are compared with
		says  string
	}{
		"one healthy":      {[]testenv.Tree{good, bare}, equal},
		"two healthy":      {[]testenv.Tree{good, good, bare}, most},
		"one that fails":   {[]testenv.Tree{bad(), bare}, equal},
		"most are bare":    {[]testenv.Tree{good, bare, bare}, "; a larger kind has no pair that counts: compared with node0, the best of the largest that have\n"},
		"fails, most bare": {[]testenv.Tree{bad(), bare, bare}, "; a larger kind has no pair that counts: compared with node0, the best of the largest that have\n"},
	} {
		dir := t.TempDir()
		for i, tree := range c.nodes {
			saved(t, dir, fmt.Sprintf("node%d", i), tree)
		}
		r := command("report", dir)
		last := len(c.nodes) - 1
		if r.status != cli.ExitFailed || !strings.HasSuffix(flat(r.out), flat(c.says)) || !strings.Contains(r.out, fmt.Sprintf("node%d differ", last)) || !strings.Contains(r.out, "  worse    gpu 0000:13:00.0: not there, was nvidia (") {
			t.Errorf("%s: %+v", name, r)
		}
		var d struct{ Result reportResult }
		if err := json.Unmarshal([]byte(command("report", "--json", dir).out), &d); err != nil || d.Result.Like != "node0" {
			t.Errorf("%s: %q, %v", name, d.Result.Like, err)
		}
	}
	// Where there is no other, they are alike.
	dir := t.TempDir()
	saved(t, dir, "node0", bare)
	saved(t, dir, "node1", bare)
	if r := command("report", dir); r.status != cli.ExitUnavailable || !strings.HasSuffix(r.out, "2 nodes, 1 kind of them\n") {
		t.Errorf("%+v", r)
	}
}

func TestNodeNames(t *testing.T) {
	for _, c := range [][2]string{
		{"a.json b.json", "a b"},
		{"run/a.json run/b.json", "a b"},
		{"x/p2pcheck.json y/p2pcheck.json", "x y"},
		{"/run/x/1/p2pcheck.json /run/y/1/p2pcheck.json", "x/1 y/1"},
		{"x/a.json y/a.json y/b.json", "x/a y/a b"},
		{"a a.json", "a a.json"},
		{"a.json x/a.json", "a x/a"},
		{"one", "one"},
	} {
		if got := strings.Join(nodeNames(strings.Fields(c[0])), " "); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
}

// draDevice is a line of --format dra: a name that is a DNS label, and attributes.
var draDevice = regexp.MustCompile(`^- \{name: ((?:gpu|nic)-[0-9a-f-]{1,58}), attributes: \{resource\.kubernetes\.io/pciBusID: \{string: "([0-9a-f:.]+)"\}(?:, resource\.kubernetes\.io/pcieRoot: \{string: "(pci[0-9a-f]{4}:[0-9a-f]{2})"\})?\}\}$`)

// devices reads what --format dra prints: the roots by address.
func devices(t *testing.T, text string) map[string]string {
	t.Helper()
	roots, names := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		m := draDevice.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "# ") || line == "devices:":
			continue
		case m == nil || names[m[1]] || roots[m[2]] != "":
			t.Errorf("%q in %s", line, text)
			continue
		}
		names[m[1]], roots[m[2]] = true, m[3]
	}
	return roots
}

// A claim of Kubernetes goes by the attributes of a GPU and a NIC: those of one host
// bridge have the same root, and the JSON names it, too.
func TestDRA(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	roots := devices(t, command("--root", root, "--format", "dra").out)
	var d struct{ Result result.Run }
	if err := json.Unmarshal([]byte(command("--root", root, "--json", "--skip", "all").out), &d); err != nil {
		t.Fatal(err)
	}
	n := 0
	at := func(name string, pci *machine.Addr, p result.Place) {
		real, err := filepath.EvalSymlinks(filepath.Join(root, "sys/bus/pci/devices", pci.String()))
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Split(strings.TrimPrefix(real, root+"/sys/devices/"), "/")[0]
		if p.Root == nil || *p.Root != want || roots[pci.String()] != want {
			t.Errorf("%s: %v and %q, want %s", name, p.Root, roots[pci.String()], want)
		}
		node, err := os.ReadFile(filepath.Join(real, "numa_node"))
		if err != nil || p.NUMA == nil || fmt.Sprint(*p.NUMA) != strings.TrimSpace(string(node)) {
			t.Errorf("%s: node %v, want %s, %v", name, p.NUMA, node, err)
		}
		group, err := filepath.EvalSymlinks(filepath.Join(real, "iommu_group"))
		if err != nil || p.Group == nil || *p.Group != filepath.Base(group) {
			t.Errorf("%s: group %v, want %s, %v", name, p.Group, group, err)
		}
		n++
	}
	for _, g := range d.Result.GPUs {
		if g.Counts {
			at(g.Name, g.PCI, g.Place)
		}
	}
	for _, c := range d.Result.NICs {
		at(c.Name, c.PCI, c.Place)
	}
	if n < 4 || len(roots) != n {
		t.Errorf("%d devices, %v", n, roots)
	}
	// What is not known is left out, and what is on no bus has no place.
	unplaced := machineTree(server+others, "0x1d")
	out := command("--root", unplaced.Write(t), "--format", "dra").out
	devices(t, out)
	if !strings.Contains(out, "# rxe0 is on no PCI bus\n") {
		t.Error(out)
	}
	if r := command("--root", filepath.Join(root, "none"), "--format", "dra"); r.status != cli.ExitUsage || r.out != "# p2pcheck: unknown\n" {
		t.Errorf("%+v", r)
	}
}

func TestFormats(t *testing.T) {
	machines := map[string]testenv.Tree{"good": testenv.Machines["small-hgx"](), "bad": bad(), "guest": testenv.FlatVM(), "empty": {Config: "-", Files: map[string]string{"sys/kernel/x": ""}}}
	for name, want := range map[string]map[string]int{
		"nagios":     {"good": 0, "bad": 2, "guest": 3, "empty": 3},
		"npd":        {"good": 0, "bad": 1, "guest": 2, "empty": 2},
		"prometheus": {"good": 0, "bad": 1, "guest": 3, "empty": 3},
		"nfd":        {"good": 0, "bad": 1, "guest": 3, "empty": 3},
		"dra":        {"good": 0, "bad": 1, "guest": 3, "empty": 3},
	} {
		for machine, status := range want {
			r := run(machines[machine], t, "--root", "ROOT", "--format", name)
			if r.status != status || r.err != "" {
				t.Errorf("%s of %s: status %d, want %d: %s%s", name, machine, r.status, status, r.out, r.err)
			}
			switch lines := strings.Count(r.out, "\n"); name {
			case "nagios":
				if lines != 1 || strings.Count(r.out, "|") != 1 || !strings.HasPrefix(r.out, "P2PCHECK "+[]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[status]) {
					t.Error(r.out)
				}
			case "npd":
				if lines != 1 || len(r.out) > 80+1 {
					t.Error(r.out)
				}
			case "prometheus":
				exposition(t, r.out)
			case "dra":
				devices(t, r.out)
			case "nfd":
				for line := range strings.Lines(r.out) {
					if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); !ok || !strings.HasPrefix(key, "p2pcheck.") || value == "" {
						t.Error(line)
					}
				}
			}
		}
	}
	if r := run(machines["good"], t, "--root", "ROOT", "--format", "odd"); r.status != cli.ExitUsage {
		t.Errorf("%+v", r)
	}
	if r := run(machines["good"], t, "--root", "ROOT", "--format", "json"); !json.Valid([]byte(r.out)) {
		t.Errorf("%+v", r)
	}
	// A device is looked at once, whatever it is called.
	r := run(machines["good"], t, "--root", "ROOT", "--gpu", "nvidia,0000:13:00.0", "--format", "npd")
	if !strings.HasPrefix(r.out, "4 of 4 pairs direct") {
		t.Errorf("%+v", r)
	}
	r = run(bad(), t, "--root", "ROOT", "--format", "nagios")
	if want := "P2PCHECK CRITICAL - 0 of 4 pairs direct; fail: GPU-EXPORTER-OPS NV-MODTYPE"; !strings.HasPrefix(r.out, want) {
		t.Error(r.out)
	}
}

// A mistake on the command line, or a place that cannot be written to, is never
// taken for a machine that is bad.
func TestFormatsOfMistakes(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	nowhere := filepath.Join(t.TempDir(), "none", "file")
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"flag after":  {[]string{"--root", root, "--frob"}, "--frob"},
		"argument":    {[]string{"--root", root, "frob"}, "frob"},
		"command":     {[]string{"topo"}, "--format"},
		"two formats": {[]string{"--root", root, "--json"}, "--json"},
		"no machine":  {[]string{"--root", nowhere}, nowhere},
		"no snapshot": {[]string{"--snapshot", nowhere}, nowhere},
		"no baseline": {[]string{"--root", root, "--baseline", nowhere}, nowhere},
		"no check":    {[]string{"--root", root, "--skip", "NO-SUCH"}, "NO-SUCH"},
		"no GPU":      {[]string{"--root", root, "--gpu", "amdgpu"}, "amdgpu"},
		"no place":    {[]string{"--root", root, "-o", nowhere}, nowhere},
	} {
		for format, status := range map[string]int{"nagios": 3, "npd": 2} {
			for _, flag := range [][]string{{"--format", format}, {"--format=" + format}} {
				for _, args := range [][]string{append(flag, c.args...), append(c.args, flag...)} {
					if r := command(args...); r.status != status || !strings.Contains(r.out+r.err, c.says) {
						t.Errorf("%s: %q: %+v", name, args, r)
					}
				}
			}
		}
	}
	if r := command("--frob", "--format", "nagios"); !strings.HasPrefix(r.out, "P2PCHECK UNKNOWN - ") || strings.Count(r.out, "\n") != 1 || strings.Contains(r.out, "pairs") {
		t.Errorf("%+v", r)
	}
	if r := command("--frob", "--format", "json"); r.status != cli.ExitUsage || !json.Valid([]byte(r.out)) {
		t.Errorf("%+v", r)
	}
	// What could not be looked at has no GPUs to count.
	if r := command("--root", nowhere, "--format", "nfd"); r.status != cli.ExitUsage || r.out != "p2pcheck.result=unknown\n" {
		t.Errorf("%+v", r)
	}
	if r := command("--root", nowhere, "--format", "prometheus"); r.status != cli.ExitUsage || !strings.Contains(r.out, "p2pcheck_status 2\n") || r.err == "" {
		t.Errorf("%+v", r)
	}
}

// exposition looks at the form of Prometheus' text format.
func exposition(t *testing.T, text string) {
	t.Helper()
	typed := map[string]bool{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) >= 4 && f[0] == "#" {
			typed[f[2]] = true
			continue
		}
		name, _, _ := strings.Cut(f[0], "{")
		if !typed[name] || len(f) < 2 {
			t.Errorf("%q", line)
		}
	}
	if !typed["p2pcheck_status"] || !typed["p2pcheck_pair_outcome"] || !typed["p2pcheck_check"] {
		t.Error(text)
	}
}

// A file that is written for others is there as a whole, or not at all.
func TestOutput(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	file := filepath.Join(t.TempDir(), "p2pcheck.prom")
	if r := command("--root", root, "--format", "prometheus", "-o", file); r.status != 0 || r.out != "" || r.err != "" {
		t.Errorf("%+v", r)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	exposition(t, string(text))
	names, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	if r := command("--root", root, "-o", filepath.Join(file, "none")); r.status != cli.ExitUsage || r.err == "" {
		t.Errorf("%+v", r)
	}
	plain := command("--root", root)
	if r := command("--root", root, "-o", "-"); r != plain {
		t.Errorf("by -o -: %+v", r)
	}
}

// What -o names and is no regular file is written to, and not replaced.
func TestOutputThrough(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	dir := t.TempDir()
	file, link, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), os.Symlink("file", link), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	want := command("--root", root, "--format", "nfd").out
	if r := command("--root", root, "--format", "nfd", "-o", link); r.status != 0 {
		t.Errorf("%+v", r)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != want {
		t.Errorf("behind the link: %q, %v", text, err)
	}
	r, err := os.OpenFile(fifo, os.O_RDWR, 0) // neither side waits for the other
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r := command("--root", root, "--format", "nfd", "-o", fifo); r.status != 0 {
		t.Errorf("%+v", r)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Errorf("from the FIFO: %q, %v", got, err)
	}
	for name, mode := range map[string]fs.FileMode{link: fs.ModeSymlink, fifo: fs.ModeNamedPipe} {
		if st, err := os.Lstat(name); err != nil || st.Mode().Type() != mode {
			t.Errorf("%s was replaced: %v", name, err)
		}
	}
	// The same numbers as /dev/full.
	full := filepath.Join(dir, "full")
	if err := unix.Mknod(full, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 7))); err != nil {
		t.Skipf("no device file can be made: %v", err)
	}
	if f, err := os.OpenFile(full, os.O_WRONLY, 0); err != nil {
		t.Skipf("no device file can be opened there: %v", err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--root", root, "-o", full}, {"--root", root, "--format", "prometheus", "-o", full}, {"snapshot", full, "--root", root}} {
		if r := command(args...); r.status != cli.ExitUsage || !strings.Contains(r.err, "no space left") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if st, err := os.Lstat(full); err != nil || st.Mode()&fs.ModeCharDevice == 0 {
		t.Errorf("the device was replaced: %v", err)
	}
}

// The metrics are those of the machine as it is, no older than is asked for.
func TestServe(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	m := &metrics{a: &app{source: machine.Source{Root: root}}, every: time.Hour}
	get := func() string {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	first := get()
	exposition(t, first)
	if !strings.Contains(first, "p2pcheck_status 0\n") || !strings.Contains(first, `p2pcheck_pair_outcome{gpu="0000:13:00.0",nic="mlx5_0",outcome="direct"} 1`) {
		t.Error(first)
	}
	// A port whose ACS nobody may read any more.
	if err := os.Truncate(filepath.Join(root, "sys/bus/pci/devices/0000:12:00.0/config"), 64); err != nil {
		t.Fatal(err)
	}
	if get() != first {
		t.Error("the machine was looked at again")
	}
	m.every = 0
	if second := get(); !strings.Contains(second, "p2pcheck_status 3\n") {
		t.Error(second)
	}
}

// Labels are written again and again, and are good for a while only.
func TestServeLabels(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "p2pcheck")
	m := &metrics{a: &app{source: machine.Source{Root: root}}, every: time.Hour}
	for range 2 {
		before := time.Now()
		if err := m.writeLabels(file); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, labels, _ := strings.Cut(string(text), "\n")
		stamp, ok := strings.CutPrefix(head, "# +expiry-time=")
		until, err := time.Parse(time.RFC3339, stamp)
		if !ok || err != nil || until.Before(before.Add(2*time.Hour)) {
			t.Errorf("%q: %v", head, err)
		}
		if labels != run(testenv.Machines["small-hgx"](), t, "--root", "ROOT", "--format", "nfd").out {
			t.Error(labels)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	if err := m.writeLabels(filepath.Join(file, "none")); err == nil {
		t.Error("written into a file")
	}
	if r := command("serve", "--nfd", file, "--every", "0", "--listen", "127.0.0.1:0"); r.status != cli.ExitUsage {
		t.Errorf("%+v", r)
	}
}

// serve answers over the network, tells that it lives without looking, and ends
// when it is told to.
func TestListen(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	file := filepath.Join(t.TempDir(), "labels")
	said, says := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		a := &app{stdout: says, stderr: says, source: machine.Source{Root: root}}
		ended <- a.listen(ctx, "127.0.0.1:0", time.Minute, file)
	}()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(strings.TrimSpace(line), "http://")
	get := func(path string) string {
		r, err := http.Get("http://" + strings.TrimSuffix(address, "/metrics") + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r.StatusCode, " ", string(text))
	}
	if got := get("/healthz"); got != "200 ok\n" {
		t.Error(got)
	}
	if got := get("/"); !strings.HasPrefix(got, "404") {
		t.Error(got)
	}
	if got := get("/metrics"); !strings.Contains(got, "p2pcheck_status 0\n") {
		t.Error(got)
	}
	for range 1000 {
		if _, err = os.Stat(file); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A node without a GPU is not a bad one, and none of which anything is known.
func TestWorker(t *testing.T) {
	root := testenv.Worker("vendor=0x8086 device=0x100e driver:e1000e").Write(t)
	if r := command("--root", root); r.status != cli.ExitUnavailable || strings.Contains(r.out, "FAIL") || strings.Contains(r.out, "modprobe") {
		t.Errorf("%+v", r)
	}
	if r := command("--root", root, "--format", "nagios"); r.status != 3 || !strings.HasPrefix(r.out, "P2PCHECK UNKNOWN - no pair to check") {
		t.Errorf("%+v", r)
	}
	if r := command("--root", root, "--format", "npd"); r.status != 2 {
		t.Errorf("%+v", r)
	}
}
