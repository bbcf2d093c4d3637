// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// located is what the program of --locate said of the bytes that the NIC had
// just written.
type located struct {
	Found bool   `json:"found"` // in the memory of the PCI device
	Says  string `json:"says"`  // its first line
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
	if err != nil && !(errors.As(err, &status) && status.ExitCode() == 1) {
		return nil, fmt.Errorf("%s, asked where the bytes are: %w: %s", program, err, strings.TrimSpace(stderr.String()))
	}
	says, _, _ := strings.Cut(stdout.String(), "\n")
	return &located{Found: err == nil, Says: says}, nil
}
