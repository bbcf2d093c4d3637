// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// shownResult is what a snapshot would have.
type shownResult struct {
	Files    []snapshot.Shown `json:"files"`    // the files that the archive would have
	Replaced int              `json:"replaced"` // how many names and texts the archive has others for
}

func (shownResult) status() int { return cli.ExitOK }

// text has each directory once, and below it a line for each of its files, or several lines. Each rule stands once, at the first file
// that it is applied to; others have its number.
func (r shownResult) text(w io.Writer, _ *app) error {
	out := bufio.NewWriter(w)
	rules := map[string]int{}
	dir, unread := "", 0
	for _, f := range r.Files {
		if at := path.Dir(f.Name); at != dir {
			dir = at
			fmt.Fprintf(out, "%s\n", dir)
		}
		name := "  " + path.Base(f.Name)
		switch {
		case f.Unread:
			unread++
			fmt.Fprintf(out, "%s: cannot be read\n", name)
			continue
		case f.Link != "":
			fmt.Fprintf(out, "%s -> %s\n", name, f.Link)
			continue
		case f.Keeps == "":
			fmt.Fprintf(out, "%s\n", name)
			continue
		}
		n, known := rules[f.Keeps]
		if !known {
			n = len(rules) + 1
			rules[f.Keeps] = n
			fmt.Fprintf(out, "%s\n", human.Fold(fmt.Sprintf("rule %d keeps %s", n, f.Keeps), "    ", "      "))
		}
		body := strings.TrimRight(f.Text, "\n")
		if !strings.Contains(body, "\n") {
			fmt.Fprintf(out, "%s [%d] %s\n", name, n, body)
			continue
		}
		fmt.Fprintf(out, "%s [%d]\n", name, n)
		for line := range strings.SplitSeq(body, "\n") {
			fmt.Fprintf(out, "      %s\n", line)
		}
	}
	fmt.Fprintf(out, "\n%d files, links and directories; %d could not be read; %d names and texts are replaced by others\n", len(r.Files), unread, r.Replaced)
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
	r.Replaced = len(taken.Replaced())
	return r, nil
}
