// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/fleet"
)

// reportResult is what report prints.
type reportResult fleet.Report

func (r reportResult) status() int { return fleet.Report(r).Status() }

func (r reportResult) text(w io.Writer, a *app) error { return fleet.Report(r).Text(w, a.style()) }

func (a *app) report() *cobra.Command {
	return &cobra.Command{
		Use:   "report FILE|DIRECTORY...",
		Short: "Merge the runs of many nodes: which fail, which differ, and why",
		Long: `report reads files that p2pcheck --json wrote, one of each node and named after
it, or all .json files of a directory. Where names of files are the same, the
directories tell them apart. What most nodes have is taken for what is right, of
kinds that equally many have the best: the others differ from it. Nodes without a
pair that counts, as without a GPU, are not what is right while there are others.

Exit status: 0 all nodes are good and alike, 1 a node fails or differs, 2 no file
can be read, 3 of a node something is unknown, or its file cannot be read.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("FILE is missing: report reads what p2pcheck --json printed on each node")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			a.reached = true
			found, err := reported(args)
			if len(found.Nodes) == 0 {
				return a.end("report", nil, &cli.UsageError{Err: err})
			}
			return a.end("report", reportResult(found), err)
		},
	}
}

// reported merges the files. A node whose file cannot be read is unknown, and the report still has all
// others. It fails if no file can be read.
func reported(args []string) (fleet.Report, error) {
	files, err := fleet.Files(args)
	if err != nil {
		return fleet.Report{}, err
	}
	var m fleet.Merge
	var errs []error
	for i, name := range fleet.Names(files) {
		if err := merged(&m, name, files[i]); err != nil {
			errs = append(errs, &cli.Unavailable{Err: err})
			m.AddUnread(name, err)
		}
	}
	err = errors.Join(errs...)
	if m.Read() == 0 {
		return fleet.Report{}, err
	}
	return m.Report(), err
}

// merged adds the run of a file.
func merged(m *fleet.Merge, node, file string) error {
	f, err := openInput(file)
	if err != nil {
		return badFile{err}
	}
	defer f.Close()
	if err := m.AddFrom(node, f); err != nil {
		return badFile{ofFile(file, err)}
	}
	return nil
}
