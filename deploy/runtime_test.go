// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// crun skips the test where the container runtime is not installed, or may not make a container. `make test`
// installs it, and then it has to be there.
func crun(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("crun"); err != nil {
		if os.Getenv("GPURDMA_NEED_HEADERS") != "" {
			t.Fatalf("%v: testbed/setup.sh test installs it", err)
		}
		t.Skip(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("crun needs root here: the manifest's capabilities are those of user 0")
	}
	namespaces(t)
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces can be had here: %s", out)
	}
}

// contained is a container of the unpacked image, by the manifest's security context: a root that is
// read-only, the user, these capabilities, and no way to others. It has not been started. With hostNetwork
// its loopback is this machine's.
func contained(t *testing.T, p pod, hostNetwork bool) *exec.Cmd {
	t.Helper()
	capabilities := []string{}
	for _, c := range p.Caps {
		capabilities = append(capabilities, names[c])
	}
	spec := specs.Spec{
		Version: "1.0.2", // that Debian 12's crun takes, too
		Root:    &specs.Root{Path: p.Root, Readonly: true},
		Process: &specs.Process{
			Args: append([]string{"/usr/bin/p2pcheck"}, p.Args...), Cwd: "/", NoNewPrivileges: true,
			User:         specs.User{UID: uint32(p.User), GID: uint32(p.User)},
			Capabilities: &specs.LinuxCapabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=65536k"}},
			{Destination: "/sys", Type: "bind", Source: "/sys", Options: []string{"rbind", "ro", "nosuid", "noexec", "nodev"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}}},
	}
	if !hostNetwork {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	for _, m := range p.Mounts {
		options := []string{"rbind"}
		if m.ReadOnly {
			options = append(options, "ro")
		}
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: m.Target, Type: "bind", Source: m.Source, Options: options})
	}
	bundle, state := t.TempDir(), t.TempDir()
	text, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	// Debian 12's crun takes no machine whose control groups are of both versions: it sees those of version 2 alone.
	const alone = `mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec crun "$@"`
	return exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", alone, "crun", "--root", state, "--cgroup-manager", "disabled",
		"run", "--bundle", bundle, "p2pcheck-"+filepath.Base(filepath.Dir(bundle)))
}

// names are what a runtime calls the capabilities.
var names = map[uintptr]string{21: "CAP_SYS_ADMIN", 34: "CAP_SYSLOG"}

// ended runs a container to its end.
func ended(t *testing.T, cmd *exec.Cmd) (status int, stdout []byte, stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.Bytes(), said.String()
}

// Under a container runtime the image answers for a snapshot as p2pcheck does outside, for a user without any
// privilege.
func TestRuntimeSnapshot(t *testing.T) {
	crun(t)
	image := staticImage(t)
	root := testenv.Machines["small-hgx"]().Write(t)
	file := filepath.Join(t.TempDir(), "machine.p2pcheck")
	sh(t, nil, filepath.Join(image, "usr/bin/p2pcheck"), "snapshot", "--root", root, file)
	if err := os.Chmod(file, 0o644); err != nil { // to the image's user
		t.Fatal(err)
	}
	status, out, stderr := ended(t, contained(t, pod{Root: image, User: imageUser, Args: []string{"--json", "--snapshot", "/snapshot"}, Mounts: []mount{{file, "/snapshot", true}}}, false))
	if status == 125 || len(out) == 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	got := look(t, status, out)
	want := whole(t, image, "--snapshot", file)
	if got.status != want.status || len(got.direct) == 0 || len(got.direct) != len(want.direct) || different(want, got) != "" {
		t.Errorf("status %d and %d, %d pairs direct and %d; %s", got.status, want.status, len(got.direct), len(want.direct), different(want, got))
	}
}

// A container has the capabilities of the manifest and no others, and a read-only root.
func TestRuntimeSecurity(t *testing.T) {
	crun(t)
	_, set := manifest(t)
	p := pod{Root: staticImage(t), Args: []string{"--json", "--skip=LIB"}}
	for _, capability := range container(t, set).SecurityContext.Capabilities.Add {
		p.Caps = append(p.Caps, capabilities[string(capability)])
	}
	status, out, stderr := ended(t, contained(t, p, false))
	if len(out) == 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	look(t, status, out)
	_, caps, _ := strings.Cut(string(out), `"ENV-CAPS"`)
	_, caps, _ = strings.Cut(caps, `"read": "`)
	caps, _, _ = strings.Cut(caps, `"`)
	if !strings.HasPrefix(caps, "without CAP_IPC_LOCK") || strings.Contains(caps, "CAP_SYS_ADMIN") || strings.Contains(caps, "CAP_SYSLOG") {
		t.Errorf("ENV-CAPS: %s", caps)
	}
	p.Args = []string{"--json", "-o", "/run.json"}
	if status, _, stderr := ended(t, contained(t, p, false)); status != 2 || !strings.Contains(stderr, "read-only") {
		t.Errorf("a write into the root: status %d: %s", status, stderr)
	}
}

// The manifest's command line serves metrics in a container, and ends when the runtime ends it.
func TestRuntimeServes(t *testing.T) {
	crun(t)
	_, set := manifest(t)
	c := container(t, set)
	features := t.TempDir()
	args := append(onLoopback(c), "--root", "/machine")
	p := pod{Root: staticImage(t), Args: args, Mounts: []mount{
		{testenv.Machines["small-hgx"]().Write(t), "/machine", true},
		{features, "/etc/kubernetes/node-feature-discovery/features.d", false},
	}}
	for _, capability := range c.SecurityContext.Capabilities.Add {
		p.Caps = append(p.Caps, capabilities[string(capability)])
	}
	for _, m := range p.Mounts { // as a runtime makes them before the root is read-only
		if err := os.MkdirAll(filepath.Join(p.Root, m.Target), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := serving(t, contained(t, p, true))
	if text := s.get(t, "/metrics"); strings.Count(text, `outcome="direct"} 1`) != 4 {
		t.Error(text)
	}
	labelled(t, features)
	s.end(t) // crun passes the signal on, as it is
}
