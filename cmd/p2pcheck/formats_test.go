// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/pciaddr"
)

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
	at := func(name string, pci *pciaddr.Addr, p result.Place) {
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
	// Attributes that are not known are left out, and so are devices that are on no PCI bus.
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
				if found := exposition(t, r.out); len(found["p2pcheck_check"].GetMetric()) == 0 || (len(found["p2pcheck_pair_outcome"].GetMetric()) == 0) != (machine == "empty") {
					t.Error(r.out)
				}
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
	// A device that two names match is read once.
	r := run(machines["good"], t, "--root", "ROOT", "--gpu", "nvidia,0000:13:00.0", "--format", "npd")
	if !strings.HasPrefix(r.out, "4 of 4 pairs direct") {
		t.Errorf("%+v", r)
	}
	r = run(bad(), t, "--root", "ROOT", "--format", "nagios")
	if want := "P2PCHECK CRITICAL - 0 of 4 pairs direct (4 refused: route); fail: GPU-EXPORTER-OPS NV-MODTYPE"; !strings.HasPrefix(r.out, want) {
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
	// Without a machine to read there are no labels that count GPUs.
	if r := command("--root", nowhere, "--format", "nfd"); r.status != cli.ExitUsage || r.out != "p2pcheck.result=unknown\n" {
		t.Errorf("%+v", r)
	}
	if r := command("--root", nowhere, "--format", "prometheus"); r.status != cli.ExitUsage || !strings.Contains(r.out, "p2pcheck_status 2\n") || r.err == "" {
		t.Errorf("%+v", r)
	}
}

// exposition parses Prometheus' text format, and asks what promtool check metrics asks. It returns the metrics by
// their names.
func exposition(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Errorf("%v in %s", err, text)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	for _, name := range []string{"p2pcheck_status", "p2pcheck_build_info", "p2pcheck_errors", "p2pcheck_last_look_timestamp_seconds", "p2pcheck_look_duration_seconds"} {
		if families[name] == nil {
			t.Errorf("no %s in %s", name, text)
		}
	}
	return families
}
