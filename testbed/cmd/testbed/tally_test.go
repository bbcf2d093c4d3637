// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/testbed/suite"
)

// A run writes its counts into a file, and testbed/tally.sh prints the files of all runs at the end of `make test`.
func TestTally(t *testing.T) {
	summary := suite.Summary{Results: []suite.Result{
		{Group: modulePath + "/trace", Name: "TestVMA", State: suite.Passed},
		{Group: modulePath + "/trace", Name: "TestVMB/one", State: suite.Skipped, Output: "    b_test.go:12: needs a GPU\n"},
		{Group: modulePath + "/trace", Name: "TestVMB/two", State: suite.Skipped, Output: "    b_test.go:34: needs a GPU\n"},
		{Group: modulePath, Name: "TestVMC", State: suite.Failed, Output: "    c_test.go:1: it broke\n"},
		{Group: "peers", Name: "pair", State: suite.Skipped, Output: "no perftest\n"},
	}}
	left := []suite.Required{{Group: "drm", Name: "TestVMZ"}, {Group: "drm", Name: "TestVMD/sub"}, {Group: "drm", Name: "TestVMD/other"}, {Group: "peers", Name: "perftest"}}
	passed, failed, skipped := summary.Count()
	count := tally{"6.12", "Linux 6.12.9, 3 boots, 1m0s, 4 left out by -skip", passed, failed, skipped}
	text := count.text(summary.Failures(modulePath), summary.Skipped(modulePath), left)
	want := `FAIL 6.12: . TestVMC: c_test.go:1: it broke
SKIP 6.12: needs a GPU: trace TestVMB
SKIP 6.12: no perftest: peers pair
LEFT 6.12: drm: TestVMD, TestVMZ
LEFT 6.12: peers: perftest
Linux 6.12.9, 3 boots, 1m0s, 4 left out by -skip: 1 passed, 1 failed, 3 skipped
`
	if text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}

	build := t.TempDir()
	for series, text := range map[string]string{"6.12": text, "7.2": "Linux 7.2, 2 boots, 1m0s: 5 passed, 0 failed, 0 skipped\n"} {
		if err := os.MkdirAll(filepath.Join(build, "testbed", series), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(build, "testbed", series, "tally"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	end := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "../../tally.sh", args...)
		cmd.Env = append(os.Environ(), "BUILD="+build)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := end("0", "6.12", "7.2")
	if err == nil {
		t.Error("a failure is no failure")
	}
	for _, words := range []string{"5 boots, 6 passed, 1 failed, 3 skipped\n", "6.12: needs a GPU: trace TestVMB\n", "6.12: drm: TestVMD, TestVMZ\n", "make test-whole", "unit tests", "FAIL 6.12: . TestVMC"} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is not in\n%s", words, out)
		}
	}
	if last := out[strings.LastIndex(strings.TrimRight(out, "\n"), "\n")+1:]; !strings.HasPrefix(last, "FAIL ") {
		t.Errorf("the failure is not last:\n%s", out)
	}
	if out, err := end("0", "7.2"); err != nil || strings.Contains(out, "left out") || strings.Contains(out, "skipped:") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := end("0", "7.2", "6.1"); err == nil || !strings.Contains(out, "FAIL 6.1: its run broke off") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := end("1", "7.2"); err == nil || !strings.Contains(out, "FAIL a step beside the tests") {
		t.Errorf("%v: %s", err, out)
	}
}
