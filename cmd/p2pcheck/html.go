// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/page"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/terminal"
	"github.com/gpurdma/gpurdma/p2p/topo"
)

// pageHelp is the text of --html.
const pageHelp = "also write the result as one page for a browser, which loads nothing: to this file, or to the standard output (-) in place of the text"

// replaceable fails if --html names what a page must not replace.
func (a *app) replaceable() error {
	if a.html == "" {
		return nil
	}
	if a.html == standard {
		if (a.json || a.format != "" && a.format != "text") && !a.toFile() {
			return errors.New("--html - and another output cannot both have the standard output: name a file for --html, or for --output")
		}
		return nil
	}
	st, err := os.Stat(a.html)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // writing it says what is wrong with its directory
	case err != nil:
		return fmt.Errorf("--html: %w", err)
	case !st.Mode().IsRegular():
		return badFile{fmt.Errorf("--html: %s is %s: only a regular file is replaced, give another path", terminal.Line(a.html), sortOf(st.Mode()))}
	}
	return nil
}

// sortOf names a kind of file.
func sortOf(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeDir:
		return "a directory"
	case fs.ModeNamedPipe:
		return "a FIFO"
	case fs.ModeSocket:
		return "a socket"
	}
	return "a device"
}

// machinePage is the page of a run.
func (a *app) machinePage(m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC, run result.Run) *page.Page {
	tree, unread := topo.Read(m, gpus, nics, len(a.gpu)+len(a.nic) == 0)
	a.named(&tree)
	run.Unread = slices.Clone(run.Unread)
	for _, err := range unread {
		run.Unread = append(run.Unread, terminal.Line(a.unmasked(err.Error())))
	}
	return page.Machine(a.subject(), run, tree)
}

// subject names the machine, or the file that it was read from; "" if the name is not known.
func (a *app) subject() string {
	for _, file := range []string{a.snapshotFile, a.lspciFile} {
		switch file {
		case "":
		case standard:
			return "the standard input"
		default:
			return terminal.Line(filepath.Base(file))
		}
	}
	if a.source.Root != "" && a.source.Root != "/" {
		return terminal.Line(a.source.Root)
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return terminal.Line(name)
}

// named gives the functions of a tree their names.
func (a *app) named(tree *topo.Topology) {
	if err := tree.Name(a.ids); err != nil {
		fmt.Fprintf(a.stderr, "%s: PCI devices have their numbers only: %v\n", program, err)
	}
}

// writePage writes the page of --html, if there is one.
func (a *app) writePage() error {
	if a.html == "" || a.page == nil {
		return nil
	}
	a.page.Label(version, time.Now())
	var b strings.Builder
	if err := a.page.Write(&b); err != nil {
		return err
	}
	text := a.unmasked(b.String())
	if a.html == standard {
		_, err := a.stdout.Write([]byte(text))
		return err
	}
	if err := a.replaceable(); err != nil {
		return err
	}
	return writeWhole("the page", "--html", a.html, []byte(text), othersRead)
}
