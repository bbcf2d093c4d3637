// SPDX-License-Identifier: Apache-2.0

package memlock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadContainer(t *testing.T) {
	for text, says := range map[string]string{
		`{"ociVersion":"1.0.2","id":"c1","status":"creating","pid":4711,"bundle":"/b"}`: "",
		``:                          "is not as a runtime writes it",
		`[]`:                        "is not as a runtime writes it",
		`{"id":"c1","pid":"4711"}`:  "is not as a runtime writes it",
		`{"id":"c1"}`:               "the process ID 0",
		`{"id":"c1","pid":-1}`:      "the process ID -1",
		`{"pid":99999999999}`:       "the process ID 99999999999",
		`{"id":"c1","pid":4711}{}`:  "is not as a runtime writes it",
		`{"id":"c1","pid":4711.5}`:  "is not as a runtime writes it",
		strings.Repeat("[", 100000): "is not as a runtime writes it",
		`{"id":"` + strings.Repeat("x", mostState) + `","pid":4711}`: "is longer than",
	} {
		c, err := ReadContainer(strings.NewReader(text))
		if says == "" && (err != nil || c != Container{"c1", 4711}) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%.60q: %+v, %v", text, c, err)
		}
	}
}

func FuzzReadContainer(f *testing.F) {
	f.Add([]byte(`{"id":"c1","pid":4711}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := ReadContainer(strings.NewReader(string(text))); err == nil && c.PID < 1 {
			t.Errorf("%+v", c)
		}
	})
}

func TestParse(t *testing.T) {
	for s, want := range map[string]Limit{"unlimited": Unlimited, "off": 0, "64Gi": 64 << 30, "1M": 1e6, "4096": 4096} {
		if got, err := ParseFlag(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
		if want == 0 {
			continue
		}
		if got, err := ParseLimit(want.String()); err != nil || got != want {
			t.Errorf("%v: %v, %v", want, got, err)
		}
	}
	for _, s := range []string{"", "0", "-1", "1.5", "much", "100Ei", "500m"} {
		if got, err := ParseFlag(s); err == nil {
			t.Errorf("%q is the flag %v", s, got)
		}
		if got, err := ParseLimit(s); err == nil {
			t.Errorf("%q is the limit %v", s, got)
		}
	}
}

// child is a process with limits of its own. The first is soft.
func child(t *testing.T, soft, hard string) int {
	t.Helper()
	c := exec.Command("/bin/sh", "-c", "ulimit -S -l "+soft+" && ulimit -H -l "+hard+" && echo ready && exec cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), c.Wait() })
	if n, err := out.Read(make([]byte, 10)); n == 0 || err != nil {
		t.Fatal(err)
	}
	return c.Process.Pid
}

// limits are those of a process: "65536 unlimited".
func limits(t *testing.T, pid int) (soft, hard string) {
	t.Helper()
	var l unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &l); err != nil {
		t.Fatal(err)
	}
	return Limit(l.Cur).String(), Limit(l.Max).String()
}

// mayRaise reports that this process may raise hard limits.
func mayRaise() bool {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&h, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// The limit of another process is raised, and never lowered.
func TestRaise(t *testing.T) {
	for name, c := range map[string]struct {
		soft, hard string // KiB
		to         Limit
		want       string
		hardToo    bool
	}{
		"the soft one":      {"64", "4096", 1 << 20, "1048576 4194304", false},
		"all that is there": {"64", "4096", 4 << 20, "4194304 4194304", false},
		"none is lowered":   {"4096", "4096", 1 << 20, "4194304 4194304", false},
		"both":              {"64", "64", 1 << 30, "1073741824 1073741824", true},
		"without limit":     {"64", "4096", Unlimited, "unlimited unlimited", true},
	} {
		t.Run(name, func(t *testing.T) {
			pid := child(t, c.soft, c.hard)
			err := Raise(pid, c.to)
			if c.hardToo && !mayRaise() {
				if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
					t.Error(err)
				}
				t.Skipf("this process has no CAP_SYS_RESOURCE, and so only the refusal was tested: %v", err)
			}
			if soft, hard := limits(t, pid); err != nil || soft+" "+hard != c.want {
				t.Errorf("%s %s, want %s; %v", soft, hard, c.want, err)
			}
		})
	}
	if err := Raise(1<<22+1, Unlimited); !errors.Is(err, unix.ESRCH) { // above PID_MAX_LIMIT
		t.Error(err)
	}
}

// Install copies a static program, and no other file.
func TestInstall(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if _, err := Install(from, to, Unlimited); !errors.Is(err, ErrNoProgram) {
		t.Error(err)
	}
	program := build(t)
	for text, says := range map[string]string{"#!/bin/sh\n": "it is no program", "": "it is no program", "libc": "it is not static"} {
		data := []byte(text)
		if text == "libc" {
			var err error
			if data, err = os.ReadFile("/bin/sh"); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(from, Program), data, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := Install(from, to, Unlimited); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	h, err := Install(filepath.Dir(program), to, 1<<30)
	if err != nil || h.HookName != "createRuntime" || h.Path != filepath.Join(to, Program) || strings.Join(h.Args, " ") != Program+" 1073741824" {
		t.Fatalf("%+v, %v", h, err)
	}
	if st, err := os.Stat(h.Path); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", st, err)
	}
}

// build builds the hook's program. A guest, where nothing can be built, has it already.
func build(t *testing.T) string {
	t.Helper()
	if built := os.Getenv("GPURDMA_DRA_MEMLOCK"); built != "" {
		return built
	}
	program := filepath.Join(t.TempDir(), Program)
	c := exec.Command("go", "build", "-o", program, "../cmd/"+Program)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}
