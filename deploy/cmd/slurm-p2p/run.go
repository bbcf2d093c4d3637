// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/intake"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// source is where a run of p2pcheck and the files of its machine are.
type source struct{ run, root, snapshot string }

func (s *source) flags(c *cobra.Command) {
	c.Flags().StringVar(&s.run, "run", "-", "`file` that p2pcheck --json wrote on this node; -: standard input")
	c.Flags().StringVar(&s.root, "root", "/", "`directory` above sys and proc of the node, as p2pcheck --root has it")
}

// machine opens the machine, from its files or from a snapshot. The caller calls done when it has read it.
func (s *source) machine() (m *machine.Machine, done func(), err error) {
	if s.snapshot == "" {
		if _, err := os.Stat(filepath.Join(s.root, "sys")); err != nil {
			return nil, nil, fmt.Errorf("--root needs a directory that has sys in it: %w", err)
		}
		return machine.Open(s.root), func() {}, nil
	}
	if s.root != "/" {
		return nil, nil, fmt.Errorf("--snapshot %s and --root %s name two machines: give one of them", s.snapshot, s.root)
	}
	f, err := os.Open(s.snapshot)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	from, done, err := intake.Open(f)
	if err != nil {
		return nil, nil, fmt.Errorf("--snapshot %s: %w", s.snapshot, err)
	}
	return machine.Open(from.Root), done, nil
}

// read reads the run of p2pcheck.
func (s *source) read(stdin io.Reader) (result.Run, error) {
	r, name := stdin, "the standard input"
	if s.run != "-" {
		f, err := os.Open(s.run)
		if err != nil {
			return result.Run{}, err
		}
		defer f.Close()
		r, name = f, s.run
	}
	run, err := fleet.Read(r)
	if err != nil {
		return result.Run{}, fmt.Errorf("%s is no run of p2pcheck --json: %w", name, err)
	}
	return run, nil
}
