// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
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
