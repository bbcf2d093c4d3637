// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gpurdma/gpurdma/testbed/layout"
)

// buildroot is the script that fetches newer series. It locks, stages and
// replaces by itself.
var buildroot = filepath.Join("kernel", "buildroot.sh")

// statusUnavailable is the script's exit status for ErrUnavailable.
const statusUnavailable = 77

// fetchNewer makes the newest kernel of a later suite the cached one, and its
// build root with it.
func fetchNewer(ctx context.Context, t layout.Tree, series string) (Kernel, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(t.Root, buildroot), series)
	cmd.Env = append(os.Environ(), "BUILD="+t.Build, "REFRESH=1", "FLAVOUR="+t.Arch.Flavour)
	// Interrupted, the script and what it runs clean up together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.Stdout = os.Stderr
	cmd.Stderr = io.MultiWriter(os.Stderr, &said)
	err := cmd.Run()
	if ctx.Err() != nil {
		return Kernel{}, ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == statusUnavailable {
		return Kernel{}, fmt.Errorf("%w: %s", ErrUnavailable, lastLine(said.String()))
	}
	if err != nil {
		return Kernel{}, fmt.Errorf("%s %s: %w", buildroot, series, err)
	}
	return Open(t, series)
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
