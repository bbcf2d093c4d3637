// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errno"
)

// located is what the program of --locate said of the bytes that the NIC had
// just written.
type located struct {
	Found bool   `json:"found"` // the bytes are in the memory of the PCI device
	Says  string `json:"says"`  // the first line that the program printed, which may be empty
}

// words is what the program said, or its status in words if it said nothing.
func (l *located) words() string {
	switch {
	case l.Says != "":
		return l.Says
	case l.Found:
		return "found"
	}
	return "not found"
}

// checkLocate wants a program that can be run, before anything is moved for it.
func checkLocate(program string) error {
	if program == "" {
		return nil
	}
	if _, err := exec.LookPath(program); err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--locate: %w", err)}
	}
	return nil
}

// locate runs `PROGRAM NONCE PCI`: status 0 means that the nonce was found, 1
// that it was not; anything else is a failure of the program.
func locate(ctx context.Context, program string, nonce []byte, pci string) (*located, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, hex.EncodeToString(nonce), pci)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second // for what it leaves behind with its output
	err := cmd.Run()
	var status *exec.ExitError
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !errors.As(err, &status):
		if n, ok := errno.Of(err); ok {
			err = n // the program is named already
		}
		return nil, &failure.Error{Op: "run", Device: program, Remedy: "name a program to --locate that this machine can run", Err: err}
	case status.ExitCode() != 1:
		says := ""
		if text := strings.TrimSpace(stderr.String()); text != "" {
			says = ": " + text
		}
		return nil, fmt.Errorf("--locate: %s %s ended with %w, where 0 means found and 1 not found%s", program, pci, err, says)
	}
	says, _, _ := strings.Cut(stdout.String(), "\n")
	return &located{Found: err == nil, Says: says}, nil
}
