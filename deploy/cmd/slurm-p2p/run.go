// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// source is where a run of p2pcheck and the files of its machine are.
type source struct{ run, root string }

func (s *source) flags(c *cobra.Command) {
	c.Flags().StringVar(&s.run, "run", "-", "`file` that p2pcheck --json wrote on this node; -: standard input")
	c.Flags().StringVar(&s.root, "root", "/", "`directory` above sys and proc of the node, as p2pcheck --root has it")
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
