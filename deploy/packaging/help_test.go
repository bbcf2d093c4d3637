// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// names are the packages.
var names = []string{"p2pcheck", "p2pcheck-agent", "dmabuf-reg"}

// result is what a program said at its end.
type result struct {
	status int
	out    string // standard output and error
}

// try runs a command.
func try(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String()}
}

// must runs a command that must end with 0, and returns what it printed.
func must(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	r := try(t, cmd)
	if r.status != 0 {
		t.Fatalf("%q: status %d: %s", cmd.Args, r.status, r.out)
	}
	return r.out
}

// tool skips a test where a program is not installed. `make test-packages` installs all of them, and then it
// has to be there.
func tool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("GPURDMA_PACKAGES") != "" {
			t.Fatalf("%v: testbed/setup.sh packages installs it", err)
		}
		t.Skip(err)
	}
}

// built is the directory of variable, in which `make test-packages` has put packages.
func built(t *testing.T, variable string) string {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" {
		t.Skipf("%s is not set: make test-packages builds the packages, and sets it", variable)
	}
	return dir
}

// debs are the packages for this machine.
func debs(t *testing.T, dir string) []string {
	t.Helper()
	return of(t, dir, map[string]string{"p2pcheck": "_amd64.deb", "p2pcheck-agent": "_all.deb", "dmabuf-reg": "_amd64.deb"})
}

func rpms(t *testing.T, dir string) []string {
	t.Helper()
	return of(t, dir, map[string]string{"p2pcheck": ".x86_64.rpm", "p2pcheck-agent": ".noarch.rpm", "dmabuf-reg": ".x86_64.rpm"})
}

// of finds the one package of each name, by the end of its file's name.
func of(t *testing.T, dir string, ends map[string]string) []string {
	t.Helper()
	var found []string
	for _, name := range names {
		all, err := filepath.Glob(filepath.Join(dir, name+`[_\-][0-9]*`+ends[name]))
		if err != nil || len(all) != 1 {
			t.Fatalf("%s has %q of %s and %s, and has to have one (%v)", dir, all, name, ends[name], err)
		}
		found = append(found, all[0])
	}
	return found
}

// rooted skips the test where it may not make mounts and namespaces.
func rooted(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root changes into another root file system")
	}
	if r := try(t, exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--net", "--cgroup", "--fork", "true")); r.status != 0 {
		t.Skip("no namespaces can be had here: ", r.out)
	}
}

// suites are the roots that packages are installed in.
func suites(t *testing.T) []string {
	t.Helper()
	dir := built(t, "GPURDMA_PACKAGES_ROOTS")
	found := []string{filepath.Join(dir, "bookworm"), filepath.Join(dir, "trixie")}
	for _, root := range found {
		if _, err := os.Stat(filepath.Join(root, "usr/bin/dpkg")); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// copyOf is a copy of a root file system, which the test may change.
func copyOf(t *testing.T, root string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	must(t, exec.CommandContext(t.Context(), "cp", "-a", "--reflink=auto", root, dir))
	return dir
}

// tree lists what is below root, but for what package managers and their triggers keep for themselves.
func tree(t *testing.T, root string) []string {
	t.Helper()
	own := []string{"/var/lib/dpkg", "/var/log", "/var/cache", "/proc", "/sys", "/dev", "/run", "/tmp", "/var/lib/systemd/deb-systemd-helper-enabled", "/var/lib/rpm", "/usr/lib/sysimage"}
	var found []string
	err := filepath.WalkDir(root, func(name string, _ os.DirEntry, err error) error {
		name = strings.TrimPrefix(name, root)
		if slices.Contains(own, name) {
			return filepath.SkipDir
		}
		found = append(found, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

// without are the elements of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool {
		_, found := slices.BinarySearch(b, s)
		return found
	})
}
