// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// peer is a running reg-loop.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startPeer starts the C program on device with the dma-buf file, which it
// inherits as fd 3.
func startPeer(program, device string, length int64, dmabuf *os.File) (*peer, error) {
	cmd := exec.Command(program, device, strconv.FormatInt(length, 10))
	cmd.ExtraFiles = []*os.File{dmabuf}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &peer{cmd, in, bufio.NewReader(out)}, nil
}

// run makes the peer register and deregister n times.
func (p *peer) run(n int) ([]time.Duration, error) {
	if _, err := fmt.Fprintln(p.in, n); err != nil {
		return nil, fmt.Errorf("%s: %w", p.cmd.Path, err)
	}
	ns := make([]time.Duration, n)
	if err := binary.Read(p.out, binary.NativeEndian, ns); err != nil {
		return nil, fmt.Errorf("%s ended early (its message is above): %w", p.cmd.Path, err)
	}
	return ns, nil
}

// close ends the peer and waits for it.
func (p *peer) close() error {
	p.in.Close()
	return p.cmd.Wait()
}
