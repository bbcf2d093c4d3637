// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// imageUser is the image's own user.
const imageUser = 65532

// Capabilities of the manifest.
var capabilities = map[string]uintptr{"SYS_ADMIN": 21, "SYSLOG": 34}

// seen is what p2pcheck found.
type seen struct {
	status int
	direct map[string]bool   // pairs
	worst  map[string]string // by check
	all    string
}

// look takes --json apart.
func look(t *testing.T, status int, out []byte) seen {
	t.Helper()
	var d struct {
		Status int `json:"exit_status"`
		Result struct {
			Pairs  []struct{ GPU, NIC, Outcome string }
			Checks []struct{ ID, Result string }
		}
	}
	if err := json.Unmarshal(out, &d); err != nil || d.Status != status || status > 3 {
		t.Fatalf("status %d, %v: %s", status, err, out)
	}
	s := seen{status, map[string]bool{}, map[string]string{}, string(out)}
	for _, p := range d.Result.Pairs {
		if p.Outcome == "direct" {
			s.direct[p.GPU+" "+p.NIC] = true
		}
	}
	ranks := []string{"fail", "unknown", "warn", "pass", "skip"}
	for _, c := range d.Result.Checks {
		if was, ok := s.worst[c.ID]; !ok || slices.Index(ranks, c.Result) < slices.Index(ranks, was) {
			s.worst[c.ID] = c.Result
		}
	}
	return s
}

// run runs a pod's program to its end.
func (p *pod) run(t *testing.T, userNamespace bool) (status int, stdout []byte) {
	t.Helper()
	cmd := p.command(t, userNamespace)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		status = exit.ExitCode()
	case err != nil:
		t.Fatalf("%v: %s", err, &stderr)
	}
	if status == 125 || strings.Contains(stderr.String(), "panic") {
		t.Fatalf("status %d: %s", status, &stderr)
	}
	return status, out.Bytes()
}

// namespaces skips the test where the process cannot have mounts of its own, and says
// whether it needs a user namespace for them. AppArmor may allow one, and no mount in it.
func namespaces(t *testing.T) (userNamespace bool) {
	t.Helper()
	var refused error
	for _, userNamespace := range []bool{false, true} {
		cmd := exec.CommandContext(t.Context(), "true")
		cmd.SysProcAttr = attributes(userNamespace)
		if refused = cmd.Run(); refused == nil {
			return userNamespace
		}
	}
	t.Skip("no private mounts can be had here: ", refused)
	return false
}

// skipped are the checks that the manifest leaves out.
func skipped(args []string) string {
	for _, arg := range args {
		if ids, ok := strings.CutPrefix(arg, "--skip="); ok {
			return ids
		}
	}
	return ""
}

// onTree are the manifest's mounts, of a machine that is files below a directory.
// The pod's own sysfs and procfs are the machine's too, without what is mounted
// on the host's.
func onTree(t *testing.T, root, features string) []mount {
	_, set := manifest(t)
	mounts := []mount{{filepath.Join(root, "sys"), "/sys", true}, {filepath.Join(root, "proc"), "/proc", true}}
	for _, empty := range []string{"/sys/kernel/tracing", "/sys/kernel/security"} {
		if _, err := os.Stat(filepath.Join(root, empty)); err == nil {
			mounts = append(mounts, mount{"", empty, true})
		}
	}
	for _, m := range hostMounts(t, set) {
		from := filepath.Join(root, m.Source)
		if !m.ReadOnly {
			from = features
		}
		if _, err := os.Stat(from); err == nil {
			mounts = append(mounts, mount{from, m.Target, m.ReadOnly})
		}
	}
	return mounts
}

// In a pod p2pcheck finds what it finds on the node, or less: no pair is direct
// and no check passes that is not and does not there.
func TestPodOfMachines(t *testing.T) {
	userNamespace := namespaces(t)
	_, set := manifest(t)
	c := container(t, set)
	skip := "--skip=" + skipped(c.Args)
	image := staticImage(t)
	for _, name := range []string{"small-hgx", "small-mi300", "grace", "flat-vm", "xe"} {
		for _, truncated := range []bool{false, true} {
			root := testenv.Machines[name]().Write(t)
			full := whole(t, image, "--root", root, skip)
			user := 0
			if truncated {
				user = imageUser
				forAllUsers(t, root)
			}
			p := pod{Root: image, Mounts: onTree(t, root, t.TempDir()), User: user, Args: []string{"--json", skip}}
			if user == 0 {
				for _, capability := range c.SecurityContext.Capabilities.Add {
					p.Caps = append(p.Caps, capabilities[string(capability)])
				}
			}
			status, out := p.run(t, userNamespace)
			got := look(t, status, out)
			for pair := range got.direct {
				if !full.direct[pair] {
					t.Errorf("%s: %s is direct in a pod", name, pair)
				}
			}
			for id, result := range got.worst {
				if environment := strings.HasPrefix(id, "ENV-") || id == "KRN-KMSG" || id == "ISO-FAULTS"; result == "pass" && full.worst[id] != "pass" && !environment {
					t.Errorf("%s: %s passes in a pod, and is %q on the node", name, id, full.worst[id])
				}
			}
			if truncated && (got.status == 0 || got.worst["ENV-CFGSPACE"] != "unknown") {
				t.Errorf("%s without privileges: status %d, %s", name, got.status, got.worst["ENV-CFGSPACE"])
			}
			// The log is this machine's, and nothing else is.
			if !truncated && (len(got.direct) != len(full.direct) || got.status != full.status && got.worst["KRN-KMSG"] == "pass" && got.worst["ISO-FAULTS"] == "pass") {
				t.Errorf("%s: %d pairs direct in a pod, %d on the node; status %d and %d\n%s", name, len(got.direct), len(full.direct), got.status, full.status, different(full, got))
			}
		}
	}
}

// different lists the checks that say something else.
func different(full, got seen) string {
	var b strings.Builder
	for id, result := range got.worst {
		if full.worst[id] != result {
			b.WriteString(id + ": " + result + ", on the node " + full.worst[id] + "\n")
		}
	}
	return b.String()
}

// whole is what p2pcheck finds outside.
func whole(t *testing.T, image string, args ...string) seen {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(image, "usr/bin/p2pcheck"), append([]string{"--json"}, args...)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return look(t, cmd.ProcessState.ExitCode(), out)
}

// forAllUsers makes a machine what the kernel shows to all users: all files, and
// the beginning of each function's configuration space.
func forAllUsers(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		switch {
		case err != nil || d.Type() == os.ModeSymlink:
			return err
		case d.IsDir():
			return os.Chmod(name, 0o755)
		case d.Name() == "config" && strings.Contains(name, "/sys/devices/"):
			err = os.Truncate(name, 64)
		}
		return errors.Join(err, os.Chmod(name, 0o644))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// On this machine, whatever it has: no crash, and nothing is direct or passes
// that root does not find so. Neither device files nor debugfs are there.
func TestPodOfThisMachine(t *testing.T) {
	userNamespace := namespaces(t)
	_, set := manifest(t)
	image := staticImage(t)
	mounts := []mount{{"/sys", "/sys", true}, {"/proc", "/proc", false}, {"", "/dev", false}}
	for _, hidden := range []string{"/sys/kernel/debug", "/sys/kernel/tracing"} {
		if _, err := os.Stat(hidden); err == nil {
			mounts = append(mounts, mount{"", hidden, false})
		}
	}
	for _, m := range hostMounts(t, set) {
		if _, err := os.Stat(m.Source); err == nil && m.ReadOnly {
			mounts = append(mounts, m)
		}
	}
	skip := "--skip=" + skipped(container(t, set).Args)
	p := pod{Root: image, Mounts: mounts, User: imageUser, Args: []string{"--json", skip}}
	status, out := p.run(t, userNamespace)
	got, full := look(t, status, out), whole(t, image, "--root", "/", skip)
	for pair := range got.direct {
		if !full.direct[pair] {
			t.Errorf("%s is direct in a pod", pair)
		}
	}
	if status == 0 && full.status != 0 {
		t.Errorf("good in a pod: %s", out)
	}
}

// The manifest's own command line serves metrics and health, writes labels, and
// ends at once after SIGTERM.
func TestPodServes(t *testing.T) {
	userNamespace := namespaces(t)
	_, set := manifest(t)
	features := t.TempDir()
	p := pod{Root: staticImage(t), Mounts: onTree(t, testenv.Machines["small-hgx"]().Write(t), features), Args: onLoopback(container(t, set))}
	s := serving(t, p.command(t, userNamespace))
	for path, want := range map[string]string{"/healthz": "ok", "/metrics": "p2pcheck_pair_outcome"} {
		if text := s.get(t, path); !strings.Contains(text, want) {
			t.Errorf("%s: %s", path, text)
		}
	}
	labelled(t, features)
	s.end(t)
}

// The image with NVML starts where the vendor's library is and where it is not,
// and says how much of BAR 1 is taken only where it can know.
func TestImageWithNVML(t *testing.T) {
	userNamespace := namespaces(t)
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	src := t.TempDir()
	build(t, src, "CGO_ENABLED=1")
	sh(t, nil, "deploy/glibc.sh", filepath.Join(src, "usr/bin/p2pcheck"), src)
	image := imageOf(t, src)
	vendor := t.TempDir()
	sh(t, nil, "cc", "-shared", "-fPIC", "-o", filepath.Join(vendor, "libnvidia-ml.so.1"), "gpualloc/nvml/testdata/nvml.c")
	libc := strings.TrimSpace(sh(t, nil, "sh", "-c", `basename "$(dirname "$(readlink -f "$(cc -print-file-name=libc.so.6)")")"`))
	tree := testenv.Machines["small-hgx"]()
	tree.Functions = strings.ReplaceAll(tree.Functions, "0000:13:00.0", "10000:41:00.0")
	for name, text := range tree.Files {
		if moved := strings.ReplaceAll(name, "0000:13:00.0", "10000:41:00.0"); moved != name {
			delete(tree.Files, name)
			tree.Files[moved] = text
		}
	}
	root := tree.Write(t)
	for present, want := range map[bool]string{true: "1 MiB of 256 MiB taken", false: "how much of it is taken is not known"} {
		p := pod{Root: image, Mounts: onTree(t, root, t.TempDir()), Args: []string{"--json"}}
		if present {
			p.Mounts = append(p.Mounts, mount{vendor, "/usr/lib/" + libc, true})
		}
		status, out := p.run(t, userNamespace)
		if got := look(t, status, out); !strings.Contains(got.all, want) {
			_, rest, _ := strings.Cut(got.all, `"NV-BAR1"`)
			t.Errorf("present %v: %.600s", present, rest)
		}
	}
}
