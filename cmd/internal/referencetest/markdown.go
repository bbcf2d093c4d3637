// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/manual"
)

// commandPages returns a page of Markdown for each command and subcommand, by file name: "prog_sub.md". It
// changes the texts of the commands.
func commandPages(root *cobra.Command) (map[string][]byte, error) {
	root.DisableAutoGenTag = true
	shown(root)
	pages := map[string][]byte{}
	return pages, writePages(root, pages)
}

func writePages(c *cobra.Command, pages map[string][]byte) error {
	var b bytes.Buffer
	defer cli.HideUnused(c)()
	if err := doc.GenMarkdownCustom(c, &b, func(name string) string { return name }); err != nil {
		return fmt.Errorf("page of %s: %w", c.CommandPath(), err)
	}
	var page bytes.Buffer
	fenced, blank := false, false
	for line := range strings.Lines(b.String()) {
		line = strings.TrimRight(line, " \t\n")
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if strings.HasPrefix(line, "##") && !fenced {
			line = line[1:] // the page's own heading is of the first level
		}
		if line != "" || !blank {
			page.WriteString(strings.ReplaceAll(line, "\t - ", ": ") + "\n")
		}
		blank = line == ""
	}
	pages[strings.ReplaceAll(c.CommandPath(), " ", "_")+".md"] = append(bytes.TrimRight(page.Bytes(), "\n"), '\n')
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writePages(sub, pages); err != nil {
			return err
		}
	}
	return nil
}

// shown makes Markdown of the texts that a page shows outside of its blocks: flags and usage are in blocks.
func shown(c *cobra.Command) {
	c.Short, c.Long = manual.Escape(c.Short), manual.Markdown(c.Long)
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	for _, sub := range c.Commands() {
		shown(sub)
	}
}
