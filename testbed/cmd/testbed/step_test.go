// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A failed step of `make test` leaves what failed in BUILD/failures, without the rest of its output.
func TestStep(t *testing.T) {
	module := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n",
		"a/a_test.go": `package a
import ("log"; "testing")
func TestA(t *testing.T) { t.Run("sub", func(t *testing.T) { log.Print("noise before"); t.Error("it broke") }) }
func TestB(t *testing.T) { log.Print("noise after") }
`,
		"b/b_test.go": "package b\nimport \"testing\"\nfunc TestGood(t *testing.T) {}\n",
		"c/c_test.go": "package c\nimport \"testing\"\nfunc TestPanic(t *testing.T) { panic(\"out of words\") }\n",
		"d/d_test.go": "package d\nimport \"testing\"\nfunc TestBuild(t *testing.T) { undefinedName() }\n",
	} {
		file := filepath.Join(module, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script, err := filepath.Abs("../../../script/step")
	if err != nil {
		t.Fatal(err)
	}
	build := filepath.Join(t.TempDir(), "build")
	step := func(args ...string) (out string, err error) {
		cmd := exec.CommandContext(t.Context(), script, args...)
		cmd.Dir, cmd.Env = module, append(os.Environ(), "BUILD="+build)
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(build, name))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}

	if out, err := step("good", "sh", "-c", "echo said; echo shouted >&2"); err != nil || out != "said\nshouted\n" {
		t.Errorf("%v: %q", err, out)
	}
	if failures := read("failures"); failures != "" {
		t.Errorf("a step that passed is a failure: %s", failures)
	}
	out, err := step("unit tests", "go", "test", "./...")
	if err == nil || !strings.Contains(out, "noise after") {
		t.Errorf("%v: %s", err, out)
	}
	failures := read("failures")
	for _, words := range []string{
		"unit tests: FAILED with exit status 1:\n", "--- FAIL: TestA/sub", "a_test.go:3: it broke\n", "panic: out of words",
		"d/d_test.go:3:32: undefined: undefinedName\n", "FAIL\texample.org/m/a\t", "FAIL\texample.org/m/d [build failed]\n",
	} {
		if !strings.Contains(failures, words) {
			t.Errorf("%q is not in\n%s", words, failures)
		}
	}
	for _, words := range []string{"noise", "example.org/m/b"} {
		if strings.Contains(failures, words) {
			t.Errorf("%q is in\n%s", words, failures)
		}
	}
	if _, err := step("lint", "sh", "-c", "echo '# configuration written to .config'; seq 100; exit 7"); err == nil || err.Error() != "exit status 7" {
		t.Errorf("error %v", err)
	}
	failures = strings.TrimPrefix(read("failures"), failures)
	if !strings.HasPrefix(failures, "lint: FAILED with exit status 7:\n  61\n") || !strings.HasSuffix(failures, "\n  100\n") {
		t.Errorf("without Go's words, not the end of the output: %s", failures)
	}
	before := read("failures")
	if _, err := step("much", "sh", "-c", "for i in $(seq 3000); do echo '--- FAIL: TestX (0.00s)'; echo '    x_test.go:1: '$i; done; exit 3"); err == nil || err.Error() != "exit status 3" {
		t.Errorf("error %v", err)
	}
	failures = strings.TrimPrefix(read("failures"), before)
	if !strings.Contains(failures, "x_test.go:1: 75\n") || !strings.HasSuffix(failures, "\n  and 5850 more lines\n") {
		t.Errorf("of 3,000 failures: %s", failures)
	}
	if steps := strings.Split(read("steps"), "\n"); len(steps) != 5 || !strings.HasPrefix(steps[0], "good ") ||
		!strings.HasPrefix(steps[1], "unit tests ") || !strings.HasSuffix(steps[2], " s, FAILED with exit status 7") ||
		!strings.HasSuffix(steps[3], " s, FAILED with exit status 3") {
		t.Errorf("steps %q", steps)
	}
}
