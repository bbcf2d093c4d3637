// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/intake"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// snapshotResult describes the archive.
type snapshotResult struct {
	File       string `json:"file"`       // the name of the archive
	Files      int    `json:"files"`      // how many files the archive has
	Bytes      int    `json:"bytes"`      // the size of the archive
	Unreadable int    `json:"unreadable"` // how many files could not be read
	// Cut is the number of functions of which the kernel showed only the first 64 bytes of
	// configuration space.
	Cut    int      `json:"cut_config"`
	Unread []string `json:"unreadable_files"` // the names of the files that could not be read, as they are on the machine
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
	if r.Cut > 0 {
		text += fmt.Sprintf("; of %s only the first 64 bytes of configuration space could be read, and pairs will be unknown: take it as root", human.Plural(r.Cut, "PCI function"))
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func (a *app) snapshot() *cobra.Command {
	show := false
	command := &cobra.Command{
		Use:   "snapshot FILE | --show",
		Short: "Write the files that the checks read into one archive, made anonymous",
		Long: `snapshot writes a compressed tar archive of the parts of /sys, /proc, /boot and
/etc that the checks read. --snapshot FILE analyses it on any machine. The archive
has the values that a check reads, and nothing else of these files. It has other
addresses, and other names for what an administrator has named. It marks files that
cannot be read (without root: most of the configuration space, the kernel's log),
and the analysis takes them as unknown. With - for FILE it goes to the standard
output. --output FILE names the archive, too. With --show p2pcheck prints what the
archive would have, file by file, and writes none.`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case !show && a.output != "" && len(args) > 0:
				return fmt.Errorf("%q and --output %s: the archive is one file, give one of them", args[0], a.output)
			case !show && a.output != "":
				return nil
			case show && len(args) > 0:
				return fmt.Errorf("--show writes no file: leave out %q", args[0])
			case show:
				return nil
			}
			return cli.Args("FILE")(c, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			a.reached = true
			if show {
				found, err := a.show()
				return a.end("snapshot", found, err)
			}
			name, flag := a.output, "--output"
			if name == "" {
				name, flag = args[0], "FILE"
			}
			a.output = "" // the archive has it
			found, err := a.take(name, flag)
			if err != nil {
				return a.end("snapshot", nil, err)
			}
			if name == standard {
				a.stdout = a.stderr // the archive has the other
			}
			return a.end("snapshot", found, nil)
		},
	}
	command.Flags().BoolVar(&show, "show", false, "print what the archive would have, and write none")
	return command
}

// gather takes a snapshot of this machine, or of the one below --root.
func (a *app) gather(options ...snapshot.Option) (*snapshot.Snapshot, error) {
	if a.source.Sys != "" || a.source.Proc != "" || a.source.Config != "" || a.source.Release != "" || a.copied() {
		return nil, &cli.UsageError{Err: fmt.Errorf("a snapshot is taken of this machine, or of --root DIR")}
	}
	if err := a.readable(); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	debug.SetGCPercent(100) // a copy may have many names: memory counts more than time
	taken, err := snapshot.Take(a.source, options...)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return taken, nil
}

func (a *app) take(name, flag string) (output, error) {
	if name == standard {
		if err := a.binary(); err != nil {
			return nil, &cli.UsageError{Err: err}
		}
	}
	taken, err := a.gather()
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	if err := taken.Write(&packed, version); err != nil {
		return nil, err
	}
	r := snapshotResult{File: name, Files: taken.Len(), Bytes: packed.Len(), Unread: taken.Unread(), Cut: taken.Cut()}
	r.Unreadable = len(r.Unread)
	if name == standard {
		r.File = "standard output"
		_, err = a.stdout.Write(packed.Bytes())
	} else {
		err = writeWhole("the snapshot", flag, name, packed.Bytes(), 0o600)
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

// openArchive reads a snapshot into memory. It returns the directory with the files, and a function that forgets them.
func openArchive(name string) (dir string, done func(), err error) {
	f, err := openRegular(name)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	source, done, err := intake.Open(f)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", name, err)
	}
	return source.Root, done, nil
}
