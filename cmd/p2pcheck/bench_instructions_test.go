// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkInstructions counts the instructions of p2pcheck itself, by valgrind, and beside them those of
// another build, which P2PCHECK_BEFORE names. Counts hardly depend on what else the machine does.
func BenchmarkInstructions(b *testing.B) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		b.Skipf("%v: testbed/setup.sh bench installs it", err)
	}
	root := aim.machine(b)
	builds := map[string]string{"now": os.Args[0], "before": os.Getenv("P2PCHECK_BEFORE")}
	for b.Loop() {
		for name, program := range builds {
			if program == "" {
				continue
			}
			b.ReportMetric(float64(instructions(b, program, root)), name+"-instructions")
		}
	}
	b.ReportMetric(0, "ns/op") // a time below valgrind says nothing
}

var counted = regexp.MustCompile(`refs:\s+([0-9,]+)`)

func instructions(b *testing.B, program, root string) uint64 {
	b.Helper()
	cmd := exec.CommandContext(context.Background(), "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, "--root", root)
	// Valgrind knows neither the instruction RDTSCP nor the signals by which Go preempts.
	cmd.Env = append(os.Environ(), asCommand+"=1", "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1,cpu.rdtscp=off")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	match := counted.FindSubmatch(out)
	if err != nil && !errors.As(err, &exit) || match == nil || !strings.Contains(string(out), " pairs: ") {
		b.Fatalf("%s: %v: %s", program, err, out)
	}
	n, err := strconv.ParseUint(strings.ReplaceAll(string(match[1]), ",", ""), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
