// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// A process that is none, that is not there, or that a copy cannot have is a
// mistake on the command line.
func TestPID(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, c := range []struct{ args, words string }{
		{"--pid 0", "from 1 on"}, {"--pid -3", "from 1 on"}, {"--pid self", "from 1 on"}, {"--pid 1x", "from 1 on"}, {"--pid 99999999999999999999", "from 1 on"},
		{"--pid 2000000000", "no such process"},
		{"--pid " + own + " --snapshot x", "this machine"}, {"--pid " + own + " --root " + t.TempDir(), "this machine"}, {"--pid " + own + " --kernel 7.2", "this machine"},
		{"topo --pid " + own, "pid"}, {"serve --pid " + own, "pid"},
	} {
		var out, errs bytes.Buffer
		a := &app{stdout: &out, stderr: &errs}
		if status := a.run(strings.Fields(c.args)); status != cli.ExitUsage || !strings.Contains(errs.String(), c.words) {
			t.Errorf("%s: %d, %s", c.args, status, &errs)
		}
	}
	a := &app{pid: own}
	if err := a.target(); err != nil || a.source.Process != os.Getpid() || !here(a.source) {
		t.Errorf("%v, %+v", err, a.source)
	}
}
