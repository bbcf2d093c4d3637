// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/lspci"
)

// inputs fails for flags that name files which exclude each other.
func (a *app) inputs() error {
	standards := 0
	for _, name := range []string{a.snapshotFile, a.lspciFile, a.lspciTree, a.baseline} {
		if name == standard {
			standards++
		}
	}
	switch {
	case a.lspciFile != "" && a.snapshotFile != "":
		return errors.New("--lspci and --snapshot each describe a machine: give one of them")
	case a.lspciTree != "" && a.lspciFile == "":
		return fmt.Errorf("--lspci-tree has the tree only: give --lspci FILE beside it, of `%s`", lspci.Command)
	case standards > 1:
		return errors.New("only one of --snapshot -, --lspci -, --lspci-tree - and --baseline - can read the standard input")
	}
	return nil
}

// unpackLspci makes the files of a machine from lspci's text. It returns their directory, and a function
// that forgets them.
func (a *app) unpackLspci() (dir string, done func(), err error) {
	text, err := ofLspci(a.lspciFile, lspci.Parse)
	if err != nil {
		return "", nil, fmt.Errorf("--lspci: %w", err)
	}
	var tree *lspci.Tree
	if a.lspciTree != "" {
		if tree, err = ofLspci(a.lspciTree, lspci.ParseTree); err != nil {
			return "", nil, fmt.Errorf("--lspci-tree: %w", err)
		}
	}
	m, err := text.Machine(tree)
	if err != nil {
		return "", nil, badFile{fmt.Errorf("%s: %w", a.lspciFile, err)}
	}
	a.notes = m.Notes
	a.skip = append(a.skip, lspci.Unanswered...)
	t, err := m.Tree()
	if err != nil {
		return "", nil, badFile{fmt.Errorf("%s: %w", a.lspciFile, err)}
	}
	dir, done = files.Mount(t)
	return dir, done, nil
}

// ofLspci reads a file by one of the parsers.
func ofLspci[T any](name string, parse func(io.Reader) (T, error)) (read T, err error) {
	f, err := openRegular(name)
	if err != nil {
		return read, err
	}
	defer f.Close()
	if read, err = parse(f); err != nil {
		return read, badFile{fmt.Errorf("%s: %w", name, err)}
	}
	return read, nil
}
