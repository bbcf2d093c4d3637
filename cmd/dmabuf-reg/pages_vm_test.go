// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// certificates makes those of docs/how-to/tls.md by its own commands, for this machine in place of both hosts, and
// returns their directory.
func certificates(t *testing.T) string {
	t.Helper()
	dir, n := t.TempDir(), 0
	for _, block := range referencetest.Blocks(t, "docs/how-to/tls.md") {
		if !strings.HasPrefix(block, "openssl ") {
			continue
		}
		n++
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.NewReplacer("10.0.0.1", "127.0.0.1", "10.0.0.2", "127.0.0.1").Replace(block))
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v in\n%s\n%s", err, block, out)
		}
	}
	if n != 3 {
		t.Fatalf("%d blocks for openssl", n)
	}
	return dir
}

// callsOn are the calls of dmabuf-reg in a page, with what is on this machine in place of what the page names,
// without the address that they listen at or connect to.
func callsOn(t *testing.T, page, dir string, here ...string) (out [][]string) {
	t.Helper()
	names := strings.NewReplacer(append(here, "cuda:0", "udmabuf", "64MiB", "1MiB")...)
	for _, call := range referencetest.Calls(t, page, app.Program) {
		var args []string
		for i, arg := range call {
			switch {
			case arg == "10.0.0.1:7471" && i == 1, arg == "--listen", i > 0 && call[i-1] == "--listen":
			case strings.HasSuffix(arg, ".pem"), strings.HasSuffix(arg, ".key"), strings.HasSuffix(arg, ".html"), strings.HasSuffix(arg, ".csv"), strings.HasSuffix(arg, ".json"):
				args = append(args, filepath.Join(dir, arg))
			default:
				args = append(args, names.Replace(arg))
			}
		}
		out = append(out, args)
	}
	return out
}

// client runs a call of a page that connects.
func (s *served) client(t *testing.T, call []string, more ...string) int {
	t.Helper()
	args := append([]string{call[0], s.doc.Result.Listen, "--json", "--timeout", stepLimit}, call[1:]...)
	r := command(t, append(args, more...)...)
	status := r.do(t)
	t.Logf("%q: status %d\n%.2000s%s", args, status, r.out.String(), r.err.String())
	if status == cli.ExitOK {
		if err := asTheSchemaSays(r.out.Bytes()); err != nil {
			t.Error(err)
		}
	}
	return status
}

// docs/how-to/tls.md: the certificates of its commands protect a connection, and a client without one is refused.
//
//testbed:kernel 7.2 6.12
func TestVMTLSPage(t *testing.T) {
	testenv.VM(t)
	dir := certificates(t)
	calls := callsOn(t, "docs/how-to/tls.md", dir)
	if len(calls) != 3 || calls[0][0] != "serve" {
		t.Fatalf("%q", calls)
	}
	s := serving(t, calls[0][1:]...)
	if s.doc.Result.Protection != "TLS" {
		t.Errorf("protection %q", s.doc.Result.Protection)
	}
	if status := s.client(t, calls[1], "--sizes", "64,4KiB", "--count", "2"); status != cli.ExitOK {
		t.Errorf("with a certificate: status %d: %s", status, s.says.String())
	}
	if status := s.client(t, calls[2]); status != cli.ExitFailed {
		t.Errorf("without a certificate: status %d", status)
	}
	s.ends(t)
}

// docs/how-to/failover.md: two rails, and nothing is lost when their links are cut.
//
//testbed:kernel 7.2 6.12
func TestVMFailoverPage(t *testing.T) {
	testenv.VM(t)
	c := testenv.NewCables(t, 2)
	dir := certificates(t)
	calls := callsOn(t, "docs/how-to/failover.md", dir, "mlx5_0,mlx5_1", "NICS")
	if len(calls) != 3 {
		t.Fatalf("%q", calls)
	}
	with := func(call []string, end string) []string {
		var out []string
		for _, arg := range call {
			out = append(out, strings.ReplaceAll(arg, "NICS", strings.Join(c.NICs(end), ",")))
		}
		return out
	}
	serve := calls[0]
	if len(serve) < 3 || serve[0] != "serve" || serve[1] != "--nic" {
		t.Fatalf("%q", serve)
	}
	s := servingSeveral(t, c, append(serve[3:], "--gpu", "udmabuf")...) // it names the NICs itself
	if status := s.client(t, with(calls[1], "a"), "--gpu", "udmabuf", "--size", "1MiB", "--sizes", "64,512KiB", "--count", "2"); status != cli.ExitOK {
		t.Errorf("connect: status %d: %s", status, s.says.String())
	}
	if status := s.client(t, with(calls[2], "a"), "--gpu", "udmabuf", "--size", "1MiB", "--sizes", "64,512KiB", "--depth", "4"); status != cli.ExitOK {
		t.Errorf("bench --flap: status %d: %s", status, s.says.String())
	}
	s.ends(t)
}

// docs/how-to/benchmark.md: in short.
//
//testbed:kernel 7.2 6.12
func TestVMBenchmarkPage(t *testing.T) {
	testenv.VM(t)
	dir := certificates(t)
	var s *served
	done := map[string]bool{}
	for _, call := range callsOn(t, "docs/how-to/benchmark.md", dir) {
		done[call[0]] = true
		switch call[0] {
		case "verify":
			r := command(t, append(call, "--gpu", "udmabuf", "--nic", "rxe0", "--size", "256KiB")...)
			if status := r.do(t); status != cli.ExitOK {
				t.Errorf("%q: status %d\n%s%s", call, status, r.out.String(), r.err.String())
			}
		case "serve":
			s = serving(t, call[1:]...)
		case "connect":
			if status := s.client(t, call, "--sizes", "64,4KiB", "--count", "2"); status != cli.ExitOK {
				t.Errorf("%q: status %d: %s", call, status, s.says.String())
			}
		case "bench":
			if status := s.client(t, call, "--sizes", "64,4KiB", "--rounds", "2", "--slice", "5ms"); status != cli.ExitOK {
				t.Errorf("%q: status %d: %s", call, status, s.says.String())
			}
		}
	}
	if len(done) != 4 {
		t.Errorf("the page has only %v", done)
	}
	s.ends(t)
}
