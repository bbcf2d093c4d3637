// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Each call of p2pcheck in docs/how-to/containers.md gives an answer, for a machine whose files are at /host and
// for a container whose variables turn dma-bufs off.
func TestContainersPage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pod.json":     `{"kind":"Pod","metadata":{"name":"job"},"spec":{"containers":[{"name":"worker","env":[{"name":"NCCL_DMABUF_ENABLE","value":"0"}]}]}}`,
		"inspect.json": `[{"Name":"/worker","Config":{"Env":["NCCL_DMABUF_ENABLE=0"]}}]`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	calls := referencetest.Calls(t, "docs/how-to/containers.md", program)
	if len(calls) < 5 {
		t.Fatalf("only %d calls", len(calls))
	}
	for _, args := range calls {
		args = slices.Clone(args)
		for i, arg := range args {
			switch {
			case arg == "/host":
				args[i] = "ROOT"
			case arg == "PID":
				args[i] = strconv.Itoa(os.Getpid())
			case strings.HasSuffix(arg, ".json"):
				args[i] = filepath.Join(dir, arg)
			}
		}
		if !slices.Contains(args, "ROOT") && !slices.Contains(args, "--pid") {
			args = append(args, "--root", "ROOT")
		}
		r := run(testenv.Machines["small-hgx"](), t, args...)
		if r.status == cli.ExitUsage {
			t.Errorf("p2pcheck %q: status %d: %s", args, r.status, r.err)
		}
		if slices.Contains(args, "--container-spec") && !strings.Contains(flat(r.out), "worker: NCCL_DMABUF_ENABLE=0: NCCL turns dma-bufs off") {
			t.Errorf("p2pcheck %q: %s", args, r.out)
		}
	}
}
