// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// shownResult is what a snapshot would have.
type shownResult struct {
	Files []snapshot.Shown `json:"files"`
}

func (shownResult) status() int { return cli.ExitOK }

// text has a line for a file of one line, and the contents below the name of others.
func (r shownResult) text(w io.Writer, _ *app) error {
	out := bufio.NewWriter(w)
	for _, f := range r.Files {
		body := strings.TrimRight(f.Text, "\n")
		switch {
		case f.Unread:
			fmt.Fprintf(out, "%s: cannot be read\n", f.Name)
		case f.Link != "":
			fmt.Fprintf(out, "%s -> %s\n", f.Name, f.Link)
		case f.Keeps == "":
			fmt.Fprintf(out, "%s\n", f.Name)
		case !strings.Contains(body, "\n"):
			fmt.Fprintf(out, "%s: %s (%s)\n", f.Name, body, f.Keeps)
		default:
			fmt.Fprintf(out, "%s (%s):\n", f.Name, f.Keeps)
			for line := range strings.SplitSeq(body, "\n") {
				fmt.Fprintf(out, "    %s\n", line)
			}
		}
	}
	return out.Flush()
}

// show gathers what a snapshot would have.
func (a *app) show() (output, error) {
	taken, err := a.gather(snapshot.WithRules)
	if err != nil {
		return nil, err
	}
	r := shownResult{Files: []snapshot.Shown{}}
	for f := range taken.Show() {
		r.Files = append(r.Files, f)
	}
	return r, nil
}
