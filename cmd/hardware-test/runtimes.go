// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// testRun is a run of the tests of one runtime.
type testRun struct {
	Runtime string   `json:"runtime"`
	Passed  int      `json:"passed"`
	Skipped int      `json:"skipped"`
	Failed  []string `json:"failed"` // tests
	Log     string   `json:"log"`    // the file beside the report
	Late    string   `json:"late"`   // the bound that ended it; "" if it ended by itself
	Error   string   `json:"error"`  // why it failed beside its tests; "" if it did not
}

// testRuntime runs the tests of a runtime with the real library, for as long as limit.
func (h *hardware) testRuntime(ctx context.Context, v vendor, limit time.Duration) (testRun, error) {
	out := testRun{Runtime: v.name, Failed: []string{}, Log: v.name + ".log"}
	text, err := run(ctx, limit, program{
		path: h.program(v.name + ".test"), args: []string{"-test.v", "-test.run", "^(TestVM|TestHardware)"},
		dir: sources(v), env: []string{"GPURDMA_HARDWARE=1"},
	})
	var bound late
	switch _, ended := status(err); {
	case errors.As(err, &bound):
		out.Late = err.Error()
	case err != nil && !ended:
		out.Error = err.Error()
	}
	for line := range strings.Lines(string(text)) {
		result, name, ok := strings.Cut(strings.TrimPrefix(line, "--- "), ": ")
		if !ok || !strings.HasPrefix(line, "--- ") {
			continue
		}
		name, _, _ = strings.Cut(name, " ")
		switch result {
		case "PASS":
			out.Passed++
		case "SKIP":
			out.Skipped++
		case "FAIL":
			out.Failed = append(out.Failed, name)
		}
	}
	if code, ended := status(err); ended && code != 0 && len(out.Failed) == 0 {
		out.Error = fmt.Sprintf("the tests ended with status %d", code)
	}
	return out, os.WriteFile(filepath.Join(h.out, out.Log), []byte(h.scrub.text(string(text))), 0o644)
}

// sources is the directory of a runtime's tests, where `go test` runs them; "" if this is not the
// repository.
func sources(v vendor) string {
	dir := filepath.Join("gpualloc", v.name)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// bad reports tests that failed or crashed. Tests that a bound ended are neither.
func (r testRun) bad() bool { return len(r.Failed) > 0 || r.Error != "" }
