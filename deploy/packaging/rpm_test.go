// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The packages are whole, and name the glibc that their programs need.
func TestRPMs(t *testing.T) {
	packages := rpms(t, built(t, "GPURDMA_PACKAGES"))
	tool(t, "rpm")
	for _, p := range packages {
		if out := must(t, exec.CommandContext(t.Context(), "rpm", "-K", p)); !strings.Contains(out, "digests OK") {
			t.Errorf("rpm -K: %s", out)
		}
		out := must(t, exec.CommandContext(t.Context(), "rpm", "-qp", "--requires", p))
		if agent := strings.Contains(p, "agent"); !strings.Contains(out, "libc.so.6(GLIBC_2.") && !agent || agent && !strings.Contains(out, "p2pcheck = ") {
			t.Errorf("%s requires %s", p, out)
		}
		if out := must(t, exec.CommandContext(t.Context(), "rpm", "-qp", "--qf", "%{LICENSE}", p)); !strings.HasPrefix(out, "Apache-2.0") {
			t.Errorf("%s: licence %q", p, out)
		}
	}
}

// They are installed into an empty root, run there by this machine's glibc, and leave nothing.
func TestRPMLife(t *testing.T) {
	packages := rpms(t, built(t, "GPURDMA_PACKAGES"))
	tool(t, "rpm")
	rooted(t)
	root := t.TempDir()
	// Without the scripts, which need a shell in that root, and without the libraries of an rpm distribution.
	rpm := func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "rpm", append([]string{"--root", root, "--noscripts", "--nodeps"}, args...)...)
	}
	must(t, rpm(append([]string{"-i"}, packages...)...))
	for _, program := range []string{"p2pcheck", "dmabuf-reg"} {
		if out := must(t, exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin", program), "--version")); !strings.Contains(out, program+" version ") {
			t.Errorf("%s --version: %s", program, out)
		}
	}
	for _, name := range []string{"usr/share/zsh/site-functions/_p2pcheck", "usr/share/licenses/p2pcheck/LICENSE", "usr/lib/systemd/system/p2pcheck.timer", "etc/p2pcheck.conf"} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, rpm(append([]string{"-e"}, names...)...))
	for _, name := range tree(t, root) {
		if strings.Contains(name, "p2pcheck") || strings.Contains(name, "dmabuf-reg") {
			t.Errorf("the removal leaves %s", name)
		}
	}
}
