// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The build without cgo looks at everything and says plainly what it cannot do.
func TestBuildWithoutCgo(t *testing.T) {
	bin := testenv.BuildWithoutCgo(t)
	for _, tt := range []struct {
		command string
		status  int
	}{
		{"devices", cli.ExitOK}, {"inspect", cli.ExitOK}, {"register", cli.ExitUnavailable}, {"verify", cli.ExitUnavailable},
		{"serve", cli.ExitUnavailable}, {"connect 127.0.0.1:1", cli.ExitUnavailable}, {"bench 127.0.0.1:1", cli.ExitUnavailable},
	} {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), bin, strings.Fields(tt.command)...)
		cmd.Stderr = &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != tt.status {
			t.Errorf("%s: exit status %d, want %d: %s", tt.command, got, tt.status, stderr.String())
		}
		if says := strings.Contains(stderr.String(), "cgo"); says != (tt.status != cli.ExitOK) {
			t.Errorf("%s: stderr %q", tt.command, stderr.String())
		}
	}
}
