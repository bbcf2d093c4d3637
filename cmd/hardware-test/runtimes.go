// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
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
	Error   string   `json:"error"`  // of the first process that ended without naming a failed test; "" if none did
}

// testsOf match the tests that run with a real library.
const testsOf = "^(TestVM|TestHardware)"

// testRuntime runs the tests of a runtime with the real library, for as long as limit. Each test
// has a process of its own: a crash, in the library or below it, ends no other test.
func (h *hardware) testRuntime(ctx context.Context, v vendor, limit time.Duration) (testRun, error) {
	out := testRun{Runtime: v.name, Failed: []string{}, Log: v.name + ".log"}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late(limit))
	defer cancel()
	tests := program{path: h.program(v.name + ".test"), dir: sources(v), env: []string{"GPURDMA_HARDWARE=1"}, together: true}
	var log bytes.Buffer
	tests.args = []string{"-test.list", testsOf}
	list, err := run(ctx, limit, tests)
	if err != nil {
		log.Write(list)
		out.fail(err)
	} else {
		for _, name := range strings.Fields(string(list)) {
			tests.args = []string{"-test.v", "-test.run", "^" + name + "$"}
			text, err := run(ctx, limit, tests)
			log.Write(text)
			out.count(name, text, err)
			if out.Late != "" {
				break
			}
		}
	}
	return out, os.WriteFile(filepath.Join(h.out, out.Log), []byte(h.scrub.text(log.String())), 0o644)
}

// count adds what one test printed, and how its process ended.
func (r *testRun) count(name string, text []byte, err error) {
	failed := len(r.Failed)
	for line := range strings.Lines(string(text)) {
		result, test, ok := strings.Cut(strings.TrimPrefix(line, "--- "), ": ")
		if !ok || !strings.HasPrefix(line, "--- ") {
			continue
		}
		test, _, _ = strings.Cut(test, " ")
		switch result {
		case "PASS":
			r.Passed++
		case "SKIP":
			r.Skipped++
		case "FAIL":
			r.Failed = append(r.Failed, test)
		}
	}
	if err != nil && len(r.Failed) == failed {
		r.fail(fmt.Errorf("%s: %w", name, err))
		if r.Late == "" {
			r.Failed = append(r.Failed, name)
		}
	}
}

// fail keeps the reason why a process ended that names no failed test.
func (r *testRun) fail(err error) {
	var bound late
	switch {
	case errors.As(err, &bound):
		r.Late = err.Error()
	case r.Error == "":
		r.Error = err.Error()
	}
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
