// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lintian of this machine's suite has no error and no warning.
func TestLintian(t *testing.T) {
	dir := built(t, "GPURDMA_PACKAGES")
	tool(t, "lintian")
	packages := debs(t, dir)
	others, err := filepath.Glob(filepath.Join(dir, "*_arm64.deb"))
	if err != nil || len(others) != 2 {
		t.Fatalf("for arm64: %q, %v", others, err)
	}
	args := append([]string{"--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"}, packages...)
	if r := try(t, exec.CommandContext(t.Context(), "lintian", append(args, others...)...)); r.status != 0 {
		t.Errorf("status %d: %s", r.status, r.out)
	}
}

// inRoot is a command in a root file system, without the host's processes.
func inRoot(t *testing.T, root string, args ...string) *exec.Cmd {
	t.Helper()
	script := `mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && exec chroot "$0" "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, root}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}
	return cmd
}

// carry copies packages into a root, and returns their names there.
func carry(t *testing.T, root string, packages []string) []string {
	t.Helper()
	var there []string
	for _, p := range packages {
		name := "/tmp/" + filepath.Base(p)
		must(t, exec.CommandContext(t.Context(), "cp", p, root+name))
		there = append(there, name)
	}
	return there
}

// An administrator's acts with the packages: install, upgrade, enable, change a setting, remove and purge.
func TestDebLife(t *testing.T) {
	older, newer := debs(t, built(t, "GPURDMA_PACKAGES_OLDER")), debs(t, built(t, "GPURDMA_PACKAGES"))
	rooted(t)
	for _, from := range suites(t) {
		t.Run(filepath.Base(from), func(t *testing.T) {
			root := copyOf(t, from)
			before := tree(t, root)
			must(t, inRoot(t, root, append([]string{"dpkg", "-i"}, carry(t, root, older)...)...))
			if links := enabled(t, root); len(links) != 0 {
				t.Errorf("the installation enables %q", links)
			}
			runs(t, root)
			// A setting that the administrator has changed stays, and so does what is enabled.
			conf := filepath.Join(root, "etc/p2pcheck.conf")
			if err := os.WriteFile(conf, []byte("P2PCHECK_ARGS=\"--skip LIM\"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			must(t, inRoot(t, root, "systemctl", "enable", "p2pcheck.timer", "p2pcheck-agent.service"))
			if out := must(t, inRoot(t, root, append([]string{"dpkg", "-i"}, carry(t, root, newer)...)...)); !strings.Contains(out, ") over (") {
				t.Errorf("this is no upgrade: %s", out)
			}
			if text, err := os.ReadFile(conf); err != nil || string(text) != "P2PCHECK_ARGS=\"--skip LIM\"\n" {
				t.Errorf("after the upgrade: %s, %v", text, err)
			}
			if links := enabled(t, root); len(links) != 2 {
				t.Errorf("after the upgrade %q are enabled, and there were two", links)
			}
			runs(t, root)
			// The directory of the timer's runs.
			if err := os.MkdirAll(filepath.Join(root, "var/lib/p2pcheck"), 0o750); err != nil {
				t.Fatal(err)
			}
			if out := must(t, inRoot(t, root, "env", "P2PCHECK_DRYRUN=1", "/usr/lib/p2pcheck/p2pcheck-health.sh")); !strings.Contains(out, "no GPU") {
				t.Errorf("the health check for Slurm found no answer of p2pcheck: %s", out)
			}
			// The TaskProlog finds slurm-p2p, which finds no plan.
			if out := must(t, inRoot(t, root, "/usr/lib/p2pcheck/p2pcheck-task-prolog.sh")); !strings.HasPrefix(out, "export GPURDMA_NO_NICS=no plan: ") {
				t.Errorf("the TaskProlog prints %s", out)
			}
			must(t, inRoot(t, root, append([]string{"dpkg", "--remove"}, names...)...))
			for name, stays := range map[string]bool{"etc/p2pcheck.conf": true, "var/lib/p2pcheck": true, "usr/bin/p2pcheck": false} {
				if _, err := os.Stat(filepath.Join(root, name)); (err == nil) != stays {
					t.Errorf("after the removal, %s: %v", name, err)
				}
			}
			must(t, inRoot(t, root, append([]string{"dpkg", "--purge"}, names...)...))
			after := tree(t, root)
			if left := without(after, before); len(left) != 0 {
				t.Errorf("a purge leaves %q", left)
			}
			if gone := without(before, after); len(gone) != 0 {
				t.Errorf("a purge takes away %q", gone)
			}
			if out := must(t, inRoot(t, root, "sh", "-c", "find /var/lib/systemd -name '*p2pcheck*'")); out != "" {
				t.Errorf("of systemd's state a purge leaves %s", out)
			}
		})
	}
}

// enabled are the links to our units.
func enabled(t *testing.T, root string) []string {
	t.Helper()
	links, err := filepath.Glob(filepath.Join(root, "etc/systemd/system/*.wants/p2pcheck*"))
	if err != nil {
		t.Fatal(err)
	}
	return links
}

// runs uses what the packages have brought.
func runs(t *testing.T, root string) {
	t.Helper()
	for _, program := range []string{"p2pcheck", "dmabuf-reg"} {
		if out := must(t, inRoot(t, root, program, "--version")); !strings.Contains(out, program+" version ") {
			t.Errorf("%s --version: %s", program, out)
		}
		page := must(t, inRoot(t, root, "sh", "-c", "MANWIDTH=120 man --warnings "+program+" 2>&1 | cat"))
		page = strings.Join(strings.Fields(page), " ") // which man spreads
		if !strings.Contains(page, "Exit status: ") || strings.Contains(page, "warning") {
			t.Errorf("man %s: %.2000s", program, page)
		}
		// Each subcommand that the command names has a page.
		help := must(t, inRoot(t, root, program, "--help"))
		_, list, _ := strings.Cut(help, "Available Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		n := 0
		for line := range strings.Lines(list) {
			name := strings.Fields(line)[0]
			if name == "help" {
				continue
			}
			n++
			must(t, inRoot(t, root, "man", "-w", program+"-"+name))
		}
		if n < 7 {
			t.Errorf("%s --help names only %d commands: %s", program, n, help)
		}
		// bash finds the completion by itself, and the program answers it.
		complete := `. /usr/share/bash-completion/bash_completion; _completion_loader ` + program + ` || :; COMP_WORDS=(` + program + ` ex) COMP_CWORD=1 COMP_LINE="` + program + ` ex" COMP_POINT=${#COMP_LINE}; __start_` + program + `; echo "${COMPREPLY[@]}"`
		if out := must(t, inRoot(t, root, "bash", "-c", complete)); !strings.Contains(out, "explain") {
			t.Errorf("completion of %s ex: %q", program, out)
		}
		must(t, inRoot(t, root, "sh", "-c", "test -s /usr/share/zsh/vendor-completions/_"+program+" && test -s /usr/share/fish/vendor_completions.d/"+program+".fish"))
	}
	// Without a GPU and a NIC p2pcheck has found nothing, and says so; it does not crash for want of NVML.
	if r := try(t, inRoot(t, root, "p2pcheck")); r.status != 3 || !strings.Contains(r.out, "no pair to check") {
		t.Errorf("p2pcheck: status %d: %s", r.status, r.out)
	}
	if out := must(t, inRoot(t, root, "systemd-analyze", "verify", "--man=no", "p2pcheck.service", "p2pcheck.timer", "p2pcheck-agent.service")); strings.Contains(out, "p2pcheck") {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	copyrights, err := filepath.Glob(filepath.Join(root, "usr/share/doc/*/copyright"))
	if err != nil || !slices.ContainsFunc(copyrights, func(name string) bool { return strings.HasSuffix(name, "doc/p2pcheck/copyright") }) {
		t.Errorf("copyright files: %q, %v", copyrights, err)
	}
}
