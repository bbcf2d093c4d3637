// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/page"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// reportResult is what report says of the nodes.
type reportResult fleet.Report

func (r reportResult) status() int { return fleet.Report(r).Status() }

func (r reportResult) text(w io.Writer, a *app) error {
	return fleet.Report(r).Text(a.screen(w), a.style())
}

func (a *app) report() *cobra.Command {
	since := ""
	c := &cobra.Command{
		Use:   "report FILE|DIRECTORY...",
		Short: "Merge the runs of many nodes: which fail, which differ, and why",
		Long: `report reads files that p2pcheck --json wrote, one of each node and named after
it, or all .json files of a directory. Where names of files are the same, the
directories tell them apart. What most nodes have is taken for what is right; if
several kinds are equally common, the best one. The other nodes differ from it.
Nodes without a pair that counts, as without a GPU, are not what is right while
there are others.

--since takes earlier runs of the same nodes, by the same names of files, and report
says of each node what became different. --html writes all of it as one page for a
browser.

Exit status: 0 all nodes are good and alike, 1 a node fails or differs, or is worse
than in its earlier run, 2 no file can be read, 3 of a node something is unknown, or
its file cannot be read, or it had an earlier run and has none now.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("FILE is missing: report reads what p2pcheck --json printed on each node")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			a.reached = true
			if err := a.replaceable(); err != nil {
				return a.end("report", nil, &cli.UsageError{Err: err})
			}
			found, err := a.reported(args, since)
			if len(found.Nodes) == 0 {
				return a.end("report", nil, &cli.UsageError{Err: err})
			}
			return a.end("report", reportResult(found), err)
		},
	}
	c.Flags().StringVar(&a.html, "html", "", pageHelp)
	c.Flags().BoolVar(&a.wide, "wide", false, wideHelp)
	c.Flags().StringVar(&since, "since", "", "earlier runs of the nodes: a file, or a directory of .json files")
	return c
}

// reported merges the files. A node whose file cannot be read is unknown, and the report still has all
// others. It fails if no file can be read.
func (a *app) reported(args []string, since string) (fleet.Report, error) {
	files, err := fleet.Files(args)
	if err != nil {
		return fleet.Report{}, err
	}
	var m fleet.Merge
	var seen *page.Fleet
	if a.html != "" {
		seen = page.NewFleet()
		m.Observe = seen.Observe
	}
	names := fleet.Names(files)
	if since != "" {
		if err := earlier(&m, names, since); err != nil {
			return fleet.Report{}, fmt.Errorf("--since: %w", err)
		}
	}
	var errs []error
	for i, name := range names {
		if err := merged(&m, name, files[i], args); err != nil {
			errs = append(errs, &cli.Unavailable{Err: err})
			m.AddUnread(name, err)
		}
	}
	err = errors.Join(errs...)
	if m.Read() == 0 {
		return fleet.Report{}, err
	}
	report := m.Report()
	if seen != nil {
		a.page = seen.Page(report)
	}
	return report, err
}

// earlier reads the earlier runs. It fails if they are of other nodes.
func earlier(m *fleet.Merge, nodes []string, from string) error {
	files, err := fleet.Files([]string{from})
	if err != nil {
		return err
	}
	same := false
	for i, name := range fleet.Names(files) {
		same = same || slices.Contains(nodes, name)
		f, err := openListed(files[i], []string{from})
		if errors.Is(err, fs.ErrNotExist) && files[i] == filepath.Clean(from) {
			return badFile{err}
		}
		if err != nil {
			m.SinceUnread(name, err)
			continue
		}
		m.Since(name, f)
		_ = f.Close()
	}
	if !same {
		return badFile{fmt.Errorf("%s has no run of a node that is reported: files of one node have the same name", terminal.Line(from))}
	}
	return nil
}

// merged adds the run of a file, which is one of the arguments or in a directory of them.
func merged(m *fleet.Merge, node, file string, args []string) error {
	f, err := openListed(file, args)
	if err != nil {
		return badFile{err}
	}
	defer f.Close()
	if err := m.AddFrom(node, f); err != nil {
		return badFile{ofFile(file, err)}
	}
	return nil
}
