// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// peer is a running C program.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// twoPeers are a C program and a second copy of it, to be compared with.
type twoPeers [2]*peer

// startPeers starts a program twice, with files as descriptors from 3 on.
func startPeers(program string, files []*os.File, args ...string) (twoPeers, error) {
	var both twoPeers
	for i := range both {
		p, err := startPeer(program, files, args)
		if err != nil {
			both.close()
			return both, err
		}
		both[i] = p
	}
	return both, nil
}

func (t twoPeers) close() {
	for _, p := range t {
		if p != nil {
			_ = p.close() // it had its say when its answers were read
		}
	}
}

func startPeer(program string, files []*os.File, args []string) (*peer, error) {
	cmd := exec.Command(program, args...)
	cmd.ExtraFiles = files
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

// run makes the peer do its work n times.
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
