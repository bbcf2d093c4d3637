// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/result"
)

func TestText(t *testing.T) {
	redirecting := machineTree(server+others, "0x1d")
	debian := machineTree(server, "0x00")
	debian.Release, debian.Config, debian.CPU = "6.12.117+deb12-amd64", testenv.WithoutP2PDMA, testenv.EPYC
	unprivileged := machineTree(strings.ReplaceAll(strings.ReplaceAll(server, "type=6", "type=6 config=64"), "type=5", "type=5 config=64"), "0x1d")
	good := machineTree(server, "0x00")
	for _, c := range []struct {
		name   string
		tree   testenv.Tree
		args   []string
		status int
	}{
		{"server", redirecting, nil, cli.ExitFailed},
		{"server-v", redirecting, []string{"-v"}, cli.ExitFailed},
		{"server-topo", redirecting, []string{"topo"}, cli.ExitOK},
		{"debian-6.12", debian, nil, cli.ExitFailed},
		{"unprivileged", unprivileged, []string{"--gpu", "amdgpu", "--nic", "mlx5_0"}, cli.ExitUnavailable},
		{"good", good, []string{"--gpu", "0000:03:00.0,0000:05:00.0", "--nic", "mlx5_0"}, cli.ExitOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(c.tree, t, append(c.args, "--root", "ROOT", "--skip", "all")...)
			if r.status != c.status || r.err != "" {
				t.Errorf("status %d, want %d: %s", r.status, c.status, r.err)
			}
			golden(t, c.name+".txt", r.out)
		})
	}
}

func TestStatus(t *testing.T) {
	good := machineTree(server, "0x00")
	empty := testenv.Tree{Files: map[string]string{"sys/kernel/x": ""}}
	noNIC := testenv.Tree{Functions: "pci0000:00/0000:00:04.0 class=0x030000 driver:amdgpu"}
	noGPU := testenv.Tree{Functions: "pci0000:00/0000:00:04.0 class=0x020000 driver:mlx5_core rdma:mlx5_0"}
	system := testenv.Tree{Functions: "pci0000:00/0000:00:04.0 class=0x020000 driver:mlx5_core rdma:mlx5_0\npci0000:00/0000:00:05.0 class=0x030000 driver:vgem"}
	unreadable := machineTree(server+"pci0000:00/0000:00:09.0 class=0x030000 vendor=odd\n", "0x00")
	pair := []string{"--gpu", "0000:03:00.0", "--nic", "mlx5_0"}
	for _, c := range []struct {
		name   string
		tree   testenv.Tree
		args   []string
		status int
		err    string
	}{
		{"direct", good, append(pair, "--root", "ROOT"), 0, ""},
		{"staged", good, []string{"--gpu", "0000:03:00.0", "--nic", "mlx5_1", "--root", "ROOT"}, 1, ""},
		{"refused", good, []string{"--gpu", "0000:03:00.0", "--nic", "mlx4_0", "--root", "ROOT"}, 1, ""},
		{"unknown", good, []string{"--gpu", "0000:03:00.0", "--nic", "mlx5_0", "--sysfs", "ROOT/sys", "--proc", "ROOT/proc"}, 3, ""},
		{"with its configuration", good, append(pair, "--sysfs", "ROOT/sys", "--proc", "ROOT/proc", "--config", "ROOT/boot/config-7.2.12+deb13-amd64"), 0, ""},
		{"kernel given", good, append(pair, "--sysfs", "ROOT/sys", "--proc", "ROOT/proc", "--kernel", "7.2.1", "--config", "ROOT/boot/config-7.2.12+deb13-amd64"), 0, ""},
		// Without procfs nothing says whether this is a guest, where the host's ports decide.
		{"no procfs", good, append(pair, "--sysfs", "ROOT/sys", "--kernel", "7.2.1", "--config", "ROOT/boot/config-7.2.12+deb13-amd64"), 3, ""},
		{"other kernel given", good, append(pair, "--root", "ROOT", "--kernel", "7.2.1"), 3, ""},
		{"empty", empty, []string{"--root", "ROOT"}, 3, "no GPU was found"},
		{"no NIC", noNIC, []string{"--root", "ROOT"}, 3, "no RDMA device was found"},
		{"no GPU", noGPU, []string{"--root", "ROOT"}, 3, "no GPU was found"},
		{"no memory of its own", system, []string{"--root", "ROOT"}, 3, ""},
		{"a GPU cannot be read", unreadable, append([]string{"--root", "ROOT"}, "--gpu", "0000:03:00.0", "--nic", "mlx5_0"), 3, "0000:00:09.0"},
		{"no such GPU", good, []string{"--gpu", "nvidia", "--root", "ROOT"}, 3, `no GPU here is called "nvidia"; there is 0000:03:00.0 of amdgpu, 0000:05:00.0 of amdgpu`},
		{"no GPU of that name, and no other", noGPU, []string{"--gpu", "nvidia", "--root", "ROOT"}, 3, `no GPU here is called "nvidia"; there is none`},
		{"no such NIC", good, []string{"--nic", "", "--nic", "efa_0", "--root", "ROOT"}, 3, `no NIC here is called "efa_0"`},
		{"no directory", good, []string{"--root", "ROOT/none"}, 2, "ROOT/none"},
		{"no configuration", good, []string{"--root", "ROOT", "--config", "ROOT/none"}, 2, "ROOT/none"},
		{"procfs alone", good, []string{"--proc", "ROOT/proc"}, 2, "--sysfs"},
		{"flag", good, []string{"--frob"}, 2, "--frob"},
		{"argument", good, []string{"frob"}, 2, "frob"},
		{"topo of nothing", empty, []string{"topo", "--root", "ROOT"}, 3, "no GPU was found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(c.tree, t, append(c.args, "--skip", "all")...)
			if r.status != c.status || !strings.Contains(r.err, c.err) || c.err == "" && r.err != "" {
				t.Errorf("status %d, want %d; %q\n%s", r.status, c.status, r.err, r.out)
			}
			// The same as JSON.
			r = run(c.tree, t, append(c.args, "--json", "--skip", "all")...)
			var d cli.Document
			if err := json.Unmarshal([]byte(r.out), &d); err != nil {
				t.Fatalf("%v: %s", err, r.out)
			}
			if d.Schema != schema || d.Status != c.status || r.status != c.status || d.OK != (c.status == 0) || (len(d.Errors) > 0) != (c.err != "") || r.err != "" {
				t.Errorf("%+v, status %d: %s", d, r.status, r.err)
			}
		})
	}
}

// --json and the text agree about each pair.
func TestJSON(t *testing.T) {
	r := run(machineTree(server+others, "0x1d"), t, "--json", "--root", "ROOT")
	var d struct {
		Command string
		Result  result.Run
	}
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		t.Fatal(err)
	}
	got := d.Result
	if d.Command != "check" || len(got.GPUs) != 5 || len(got.NICs) != 4 || len(got.Pairs) != 20 || strings.Contains(r.out, `: null,
      "why"`) {
		t.Fatalf("%s: %d GPUs, %d NICs, %d pairs", d.Command, len(got.GPUs), len(got.NICs), len(got.Pairs))
	}
	var found bool
	for _, p := range got.Pairs {
		if p.GPU != "0000:05:00.0" || p.NIC != "mlx5_0" {
			continue
		}
		found = true
		if p.Outcome != "staged" || p.Decision.Type != "not supported" || *p.Decision.Steps != 4 || *p.Decision.Distance != -1 || p.Decision.Common.String() != "0000:01:00.0" ||
			len(p.Decision.Redirects) != 1 || p.Decision.Redirects[0].PCI.String() != "0000:02:02.0" || p.NCCL != "PIX" || p.NVML != "PIX" ||
			p.Remedy == nil || p.Remedy.Command != "pci=disable_acs_redir=0000:02:02.0" || !p.Remedy.Direct {
			t.Errorf("%+v, remedy %+v", p, p.Remedy)
		}
	}
	if s := got.Summary; !found || s.Direct+s.Staged+s.Refused+s.Lost+s.Broken+s.Unknown != 16 || s.Total() != 16 || s.Broken != 3 || s.Outside != 4 {
		t.Errorf("found %v, %+v", found, s)
	}
}

// Colours change nothing else.
func TestColour(t *testing.T) {
	root := machineTree(server, "0x1d").Write(t)
	var plain, coloured strings.Builder
	(&app{stdout: &plain, stderr: &plain}).run([]string{"--root", root})
	(&app{stdout: &coloured, stderr: &coloured, color: true}).run([]string{"--root", root})
	stripped := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(coloured.String(), "")
	if stripped != plain.String() || stripped == coloured.String() {
		t.Errorf("%q\n%q", plain.String(), coloured.String())
	}
	// A file is no terminal.
	file := filepath.Join(t.TempDir(), "report.txt")
	(&app{stdout: &coloured, stderr: &coloured, color: true}).run([]string{"--root", root, "-o", file})
	if text, err := os.ReadFile(file); err != nil || string(text) != plain.String() {
		t.Errorf("%q, %v", text, err)
	}
}
