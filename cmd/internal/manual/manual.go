// SPDX-License-Identifier: Apache-2.0

package manual

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// Main writes the manual of a command into the directory that the arguments name, and returns the exit
// status.
func Main(root *cobra.Command, args []string, stderr io.Writer) int {
	err := errors.New("name one directory to write to")
	if len(args) == 1 {
		var at time.Time
		if at, err = date(os.Getenv("SOURCE_DATE_EPOCH")); err == nil {
			err = Write(root, args[0], at)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "manual of %s: %v\n", root.Name(), err)
		return 2
	}
	return 0
}

// date is the date in the pages: that of SOURCE_DATE_EPOCH, by which two builds of one source agree.
func date(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Time{}, errors.New("set SOURCE_DATE_EPOCH to the date of the pages, in seconds since 1970")
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%q: it takes seconds since 1970", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// Write writes a page for each command and subcommand into man/man1 below dir, and the completions where
// distributions have them below /usr/share. It changes the texts of the commands.
func Write(root *cobra.Command, dir string, at time.Time) error {
	if err := completions(root, dir); err != nil {
		return err
	}
	pages := filepath.Join(dir, "man", "man1")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true
	prepare(root)
	header := &doc.GenManHeader{Section: "1", Date: &at, Source: root.Name() + " " + root.Version, Manual: "User Commands"}
	return manPages(root, *header, pages)
}

// manPages writes the page of a command, and those of its subcommands.
func manPages(c *cobra.Command, header doc.GenManHeader, dir string) error {
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := manPages(sub, header, dir); err != nil {
			return err
		}
	}
	defer cli.HideUnused(c)()
	return writeFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"), func(w io.Writer) error {
		var page bytes.Buffer
		if err := doc.GenMan(c, &header, &page); err != nil {
			return err
		}
		// Cobra shows the default of a flag that needs no value: "--help[=false]" does not say what it takes.
		_, err := strings.NewReplacer("[=false]", "[=true|false]", "[=true]", "[=true|false]").WriteString(w, page.String())
		return err
	})
}

// completions writes a file for each shell.
func completions(root *cobra.Command, dir string) error {
	name := root.Name()
	for file, write := range map[string]func(io.Writer) error{
		"bash-completion/completions/" + name:         func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh/site-functions/_" + name:                 root.GenZshCompletion,
		"fish/vendor_completions.d/" + name + ".fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	} {
		if err := writeFile(filepath.Join(dir, file), write); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
