// SPDX-License-Identifier: Apache-2.0

package memlock

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tags.cncf.io/container-device-interface/specs-go"
)

// bundle is a container that prints its own limit, for a runtime.
func bundle(t *testing.T, hook *specs.Hook) string {
	t.Helper()
	dir := t.TempDir()
	mounts := []map[string]any{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
	}
	for _, d := range []string{"/proc", "/dev", "/usr", "/bin", "/lib", "/lib64"} {
		if err := os.MkdirAll(filepath.Join(dir, "rootfs", d), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(d); err == nil && d != "/proc" && d != "/dev" {
			mounts = append(mounts, map[string]any{"destination": d, "type": "bind", "source": d, "options": []string{"rbind", "ro"}})
		}
	}
	config := map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user": map[string]int{"uid": 0, "gid": 0}, "cwd": "/", "env": []string{"PATH=/usr/bin:/bin"}, "args": []string{"/bin/cat", "/proc/self/limits"},
		},
		"root":   map[string]any{"path": "rootfs"},
		"mounts": mounts,
		"linux":  map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}}},
	}
	if hook != nil {
		config["hooks"] = map[string]any{hook.HookName: []map[string]any{{"path": hook.Path, "args": hook.Args}}}
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

var locked = regexp.MustCompile(`Max locked memory +(\w+) +(\w+)`)

// run runs a container, and returns its limits.
func run(t *testing.T, runtime, name string, hook *specs.Hook) (string, error) {
	t.Helper()
	c := exec.Command("/bin/sh", "-c", "ulimit -S -l 64; exec "+runtime+` --root "$1" run --bundle "$2" "$3"`, "sh", t.TempDir(), bundle(t, hook), fmt.Sprint(name, os.Getpid()))
	out, err := c.CombinedOutput()
	m := locked.FindStringSubmatch(string(out))
	if err != nil || m == nil {
		return "", fmt.Errorf("%s: %v: %s", runtime, err, out)
	}
	return m[1] + " " + m[2], nil
}

// In a container of a real runtime, the program starts with the limit that the hook was told, and starts as well
// if the hook is told nonsense.
func TestRuntimes(t *testing.T) {
	for _, runtime := range []string{"runc", "crun"} {
		t.Run(runtime, func(t *testing.T) {
			if _, err := exec.LookPath(runtime); err != nil {
				t.Skipf("%v: testbed/setup.sh dra installs it", err)
			}
			plain, err := run(t, runtime, "plain", nil)
			if err != nil {
				t.Skipf("it runs no container here: %v", err)
			}
			soft, hard, _ := strings.Cut(plain, " ")
			if soft != "65536" {
				t.Fatalf("without a hook: %s", plain)
			}
			to, want := Unlimited, "unlimited unlimited"
			if !mayRaise() {
				t.Logf("this process has no CAP_SYS_RESOURCE: only the soft limit is raised")
				to, want = 2<<20, fmt.Sprint(2<<20, " ", hard)
			}
			hook, err := Install(filepath.Dir(build(t)), t.TempDir(), to)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := run(t, runtime, "raised", hook); err != nil || got != want {
				t.Errorf("%s, want %s; %v", got, want, err)
			}
			hook.Args = []string{Program, "nonsense"}
			if got, err := run(t, runtime, "nonsense", hook); err != nil || got != plain {
				t.Errorf("%s, want %s; %v", got, plain, err)
			}
		})
	}
}
