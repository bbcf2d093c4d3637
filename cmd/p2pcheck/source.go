// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// aRelease matches the beginning of a kernel's release.
var aRelease = regexp.MustCompile(`^[1-9]\d*\.\d+`)

// configLimit is larger than any kernel's configuration.
const configLimit = 16 << 20

// readable fails for a file or directory of a flag that cannot be read, or that is none of the kind that the
// flag needs.
func (a *app) readable() error {
	s := a.source
	if s.Sys == "" {
		s.Sys = filepath.Join(cmp.Or(s.Root, "/"), "sys")
	}
	if _, err := files.ReadDir(s.Sys); err != nil && a.source.Sys != "" {
		return fmt.Errorf("--sysfs: %w", err)
	} else if err != nil {
		return ofRoot(s.Root, err)
	}
	if s.Proc != "" {
		if _, err := files.ReadDir(s.Proc); err != nil {
			return fmt.Errorf("--proc: %w", err)
		}
	}
	if a.source.Sys != "" {
		if err := aSysfs(s.Sys); err != nil {
			return err
		}
	}
	if s.Release != "" && !aRelease.MatchString(s.Release) {
		return fmt.Errorf("--kernel %q is no release of a kernel: they begin as 6.12 does", s.Release)
	}
	if s.Config == "" {
		return nil
	}
	// Stat comes before open: opening a FIFO would wait for its writer.
	switch st, err := files.Stat(s.Config); {
	case err != nil:
		return fmt.Errorf("--config: %w", err)
	case !st.Mode().IsRegular():
		return fmt.Errorf("--config %s is no regular file", s.Config)
	case st.Size() > configLimit:
		return fmt.Errorf("--config %s is larger than %d MiB: that is no configuration of a kernel", s.Config, configLimit>>20)
	}
	f, err := files.Open(s.Config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	return f.Close()
}

// ofSysfs are directories that a sysfs has, and nothing else.
var ofSysfs = []string{"bus/pci/devices", "class", "devices"}

// aSysfs fails for a directory that is no sysfs, and names the sysfs below it if there is one.
func aSysfs(dir string) error {
	is := func(dir string) bool {
		return slices.ContainsFunc(ofSysfs, func(name string) bool {
			st, err := files.Stat(filepath.Join(dir, name))
			return err == nil && st.IsDir() // a procfs has files of those names
		})
	}
	switch {
	case is(dir):
		return nil
	case is(filepath.Join(dir, "sys")):
		return fmt.Errorf("--sysfs %s is no sysfs, and has one below it: give --root %s", dir, dir)
	}
	return fmt.Errorf("--sysfs %s is no sysfs: it has none of %s", dir, strings.Join(ofSysfs, ", "))
}

// ofRoot fails for a --root without sys below it. If that directory is a sysfs itself, the error names the
// right flag.
func ofRoot(root string, err error) error {
	switch {
	case root != "" && errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("--root needs a directory that has sys in it, and %s is a file: %w", root, err)
	case root == "" || !errors.Is(err, fs.ErrNotExist):
		return err
	}
	for _, name := range ofSysfs {
		if _, err2 := files.Stat(filepath.Join(root, name)); err2 != nil {
			return fmt.Errorf("--root needs a directory that has sys in it: %w", err)
		}
	}
	instead := "give --sysfs " + root
	if whole, err := filepath.Abs(root); err == nil && filepath.Base(whole) == "sys" {
		instead = "give --root " + filepath.Dir(whole)
	}
	return fmt.Errorf("--root is the directory above sys, and %s is a sysfs itself: %s", root, instead)
}

// configured fails if the file of --config is no kernel configuration.
func (a *app) configured(m *machine.Machine) error {
	if a.source.Config == "" || m.Kernel.Source == a.source.Config {
		return nil
	}
	return errors.New("--config: " + m.Kernel.Source)
}

// again are the flags by which p2pcheck reads the same machine again, as a shell takes them: "" for this
// machine, and for the standard input.
func (a *app) again() string {
	var b strings.Builder
	for _, f := range []struct{ name, value string }{
		{"snapshot", a.snapshotFile}, {"lspci", a.lspciFile}, {"lspci-tree", a.lspciTree}, {"root", a.source.Root},
		{"sysfs", a.source.Sys}, {"proc", a.source.Proc}, {"kernel", a.source.Release}, {"config", a.source.Config}, {"proofs", a.proofs},
	} {
		switch {
		case f.value == standard:
			return ""
		case f.value == "", f.name == "root" && a.copied():
			continue
		}
		b.WriteString(" --" + f.name + " " + shellWord(f.value))
	}
	return b.String()
}

// plainWord matches a word that means the same to a shell without quotes.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shellWord is a text as one word for a shell.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
