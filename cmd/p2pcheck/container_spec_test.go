// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/check/libcheck"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// The variables of each container of a specification are judged in place of this process's.
func TestContainerSpec(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	spec := filepath.Join(t.TempDir(), "pod.json")
	pod := `{"kind":"Pod","metadata":{"name":"job"},"spec":{"containers":[
		{"name":"worker","env":[{"name":"NCCL_DMABUF_ENABLE","value":"0"}]},
		{"name":"helper","env":[{"name":"UCX_TLS","valueFrom":{}}]}]}}`
	if err := os.WriteFile(spec, []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		a := &app{stdout: &out, stderr: &errs}
		status := a.run(args)
		return status, out.String(), errs.String()
	}
	status, out, errs := ask("--root", root, "--container-spec", spec, "-v")
	for _, want := range []string{
		"container worker: NCCL_DMABUF_ENABLE=0: NCCL turns dma-bufs off, and no peer-memory client is registered: data goes through system memory",
		"container helper: UCX_TLS: the value is not in the specification",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%d: no %q in %s%s", status, want, out, errs)
		}
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		words string
	}{
		{[]string{"--root", root, "--container-spec", spec + "x"}, "no such file"},
		{[]string{"--root", root, "--container-spec", broken}, broken},
		{[]string{"--pid", "1", "--container-spec", spec}, "either of the containers"},
	} {
		if status, _, errs := ask(c.args...); status != cli.ExitUsage || !strings.Contains(errs, c.words) {
			t.Errorf("%v: %d, %s", c.args, status, errs)
		}
	}
}

// Variables that this machine cannot judge, and those that --skip leaves out, are told, with the reason and what to do.
func TestContainerSpecNotJudged(t *testing.T) {
	spec := filepath.Join(t.TempDir(), "pod.json")
	pod := `{"kind":"Pod","metadata":{"name":"job"},"spec":{"containers":[
		{"name":"worker","env":[{"name":"NCCL_DMABUF_ENABLE","value":"0"},{"name":"NCCL_NET_GDR_LEVEL","value":"LOC"}]}]}}`
	if err := os.WriteFile(spec, []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	none := testenv.Tree{CPU: testenv.Xeon, Functions: "\npci0000:00/0000:00:01.0 class=0x060400 type=4\n"}
	noNIC := testenv.Tree{CPU: testenv.Xeon, Functions: none.Functions + "pci0000:00/0000:00:01.0/0000:01:00.0 class=0x120000 vendor=0x1002 device=0x74a1 driver:amdgpu mem_info_vram_total=206141652992\n"}
	const node = "run p2pcheck on the container's node, or with --snapshot of that node"
	for name, c := range map[string]struct {
		tree testenv.Tree
		args []string
		want []string
		not  string
	}{
		"no GPU":     {none, nil, []string{"--container-spec", "the variables of its containers were not judged: no GPU with memory of its own was found; " + node}, ""},
		"no NIC":     {noNIC, nil, []string{"the variables of its containers were not judged: no RDMA device was found; " + node}, "no GPU with memory"},
		"redirected": {machineTree(server, "0x1f"), []string{"--nic", "mlx4_0"}, []string{"NCCL_NET_GDR_LEVEL of container worker was not judged: no direct pair on PCI; first change what the pairs need"}, "NCCL_DMABUF_ENABLE of"},
		"good":       {testenv.Machines["small-hgx"](), nil, nil, "not judged"},
	} {
		r := run(c.tree, t, append([]string{"--root", "ROOT", "--container-spec", spec}, c.args...)...)
		for _, want := range c.want {
			if !strings.Contains(flat(r.err), want) {
				t.Errorf("%s: no %q in %s", name, want, r.err)
			}
		}
		if c.not != "" && strings.Contains(flat(r.err), c.not) {
			t.Errorf("%s: %s", name, r.err)
		}
		if len(c.want) > 0 && (r.status == cli.ExitOK || r.status == cli.ExitUsage) {
			t.Errorf("%s: status %d", name, r.status)
		}
	}
	// The checks that judged nothing are unknown, and do not pass.
	var d struct{ Result result.Run }
	if err := json.Unmarshal([]byte(run(none, t, "--root", "ROOT", "--container-spec", spec, "--json").out), &d); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range d.Result.Checks {
		if len(libcheck.Variables(f.ID)) == 0 {
			continue
		}
		seen++
		if f.Result != "unknown" || !strings.Contains(f.Read, "not judged: no GPU with memory of its own was found") {
			t.Errorf("%s: %s: %s", f.ID, f.Result, f.Read)
		}
		if f.ID == "LIB-NCCL-ENV" && !strings.HasPrefix(f.Read, "container worker: NCCL_DMABUF_ENABLE=0: not judged") {
			t.Error(f.Read)
		}
	}
	if seen < 5 {
		t.Errorf("%d checks of variables", seen)
	}
	for _, skip := range []string{"LIB", "all"} {
		r := run(testenv.Machines["small-hgx"](), t, "--root", "ROOT", "--container-spec", spec, "--skip", skip)
		if r.status != cli.ExitUsage || !strings.Contains(flat(r.err), "--container-spec and --skip "+skip+": ") {
			t.Errorf("--skip %s: %d, %s", skip, r.status, r.err)
		}
	}
	if r := run(testenv.Machines["small-hgx"](), t, "--root", "ROOT", "--container-spec", spec, "--skip", "LIB-NCCL-ENV"); r.status == cli.ExitUsage {
		t.Error(r.err)
	}
}
