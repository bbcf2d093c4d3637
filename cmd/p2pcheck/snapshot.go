// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/render"
)

// snapshotResult describes the archive.
type snapshotResult struct {
	File       string `json:"file"`
	Files      int    `json:"files"`
	Bytes      int    `json:"bytes"`
	Unreadable int    `json:"unreadable"`
	// Unread are the names of the files that could not be read, as they are on the machine.
	Unread []string `json:"unreadable_files"`
}

func (snapshotResult) status() int { return cli.ExitOK }

func (r snapshotResult) text(w io.Writer, _ *app) error {
	text := fmt.Sprintf("%s: %d files in %d bytes", r.File, r.Files, r.Bytes)
	if r.Unreadable > 0 {
		them := "them"
		if r.Unreadable == 1 {
			them = "it"
		}
		text += fmt.Sprintf("; %d could not be read, and checks that need %s will be unknown: %s", r.Unreadable, them, human.First(r.Unread, render.ShownPairs))
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func (a *app) snapshot() *cobra.Command {
	return &cobra.Command{
		Use:   "snapshot FILE",
		Short: "Write the files that the checks read into one archive, made anonymous",
		Long: `snapshot writes a compressed tar archive of the parts of /sys, /proc, /boot and
/etc that the checks read. --snapshot FILE analyses it on any machine. The archive
has no serial numbers, and replaces network addresses. It marks files that cannot
be read (without root: most of the configuration space, the kernel's log), and the
analysis takes them as unknown. With - for FILE it goes to the standard output.`,
		Args: cli.Args("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			a.reached = true
			found, err := a.take(args[0])
			if err != nil {
				return a.end("snapshot", nil, err)
			}
			if args[0] == standard {
				a.stdout = a.stderr // the archive has the other
			}
			return a.end("snapshot", found, nil)
		},
	}
}

func (a *app) take(name string) (output, error) {
	if a.source.Sys != "" || a.source.Proc != "" || a.source.Config != "" || a.source.Release != "" {
		return nil, &cli.UsageError{Err: fmt.Errorf("a snapshot is taken of this machine, or of --root DIR")}
	}
	if name == standard {
		if err := a.binary(); err != nil {
			return nil, &cli.UsageError{Err: err}
		}
	}
	if err := a.readable(); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	root := a.source.Root
	if root == "" {
		root = "/"
	}
	entries := gather(root, a)
	var packed bytes.Buffer
	if err := pack(&packed, entries); err != nil {
		return nil, err
	}
	r := snapshotResult{File: name, Files: len(entries), Bytes: packed.Len(), Unread: []string{}}
	for file, e := range entries {
		if e.unreadable {
			r.Unreadable++
			r.Unread = append(r.Unread, "/"+file)
		}
	}
	slices.Sort(r.Unread)
	var err error
	if name == standard {
		r.File = "standard output"
		_, err = a.stdout.Write(packed.Bytes())
	} else {
		err = writeWhole("the snapshot", "FILE", name, packed.Bytes(), 0o600)
	}
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return r, nil
}

// binary fails if the standard output cannot take an archive.
func (a *app) binary() error {
	if f, ok := a.stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return errors.New("a terminal cannot show an archive: redirect the output, or name a file")
	}
	if a.json {
		return errors.New("--json and the snapshot cannot both have the standard output: name a file")
	}
	return nil
}

// gather collects and redacts.
func gather(root string, a *app) map[string]entry {
	entries := collect(root)
	lines, cut, err := a.source.Open().ReadLog()
	switch _, there := entries["dev/kmsg"]; {
	case err != nil && there:
		entries["dev/kmsg"] = entry{unreadable: true}
	case err == nil:
		entries["dev/kmsg"] = entry{}
	}
	addGroups(entries, root)
	redact(entries, logged(lines, cut))
	return entries
}

// addGroups adds the limits of the control group and of the groups above it, each of which can refuse. It
// replaces the groups' names.
func addGroups(entries map[string]entry, root string) {
	own, err := (&collector{root: root, entries: map[string]entry{}}).contents("proc/self/cgroup")
	if err != nil {
		return
	}
	from, to := ownGroup(own), ownGroup(group(own))
	for ; strings.HasPrefix(from, cgroups+"/"); from, to = path.Dir(from), path.Dir(to) {
		c := &collector{root: root, entries: map[string]entry{}}
		for _, file := range []string{"rdma.max", "rdma.current"} {
			c.add(path.Join(from, file), false)
		}
		for name, e := range c.entries {
			if file := path.Base(name); strings.HasPrefix(file, "rdma.") {
				entries[path.Join(to, file)] = e
			}
		}
	}
}
