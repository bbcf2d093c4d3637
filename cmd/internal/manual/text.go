// SPDX-License-Identifier: Apache-2.0

package manual

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// prepare makes the texts of a command and its subcommands Markdown, which pages are made from.
func prepare(c *cobra.Command) {
	c.Short = Escape(c.Short)
	c.Long = Markdown(c.Long)
	if name, args, ok := strings.Cut(c.Use, " "); ok {
		c.Use = name + " " + Escape(args)
	}
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	// An inherited flag is its parent's, which is prepared once.
	for _, flags := range []*pflag.FlagSet{c.PersistentFlags(), c.LocalNonPersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			f.Usage = Escape(usage)
		})
	}
	for _, sub := range c.Commands() {
		prepare(sub)
	}
}

// special are the characters that mean something in Markdown.
const special = "\\`*_[]<>|~"

// Escape makes text Markdown that shows it as it is.
func Escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strings.ContainsRune(special, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Markdown makes help text Markdown: a line that is indented is a row of a table or an example, and stays as
// it is.
func Markdown(text string) string {
	var b strings.Builder
	was := false // in rows
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		blank := strings.TrimSpace(line) == ""
		row := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t") || was && blank
		if row != was {
			b.WriteByte('\n')
		}
		was = row
		switch {
		case blank:
		case row:
			b.WriteString("    " + line)
		default:
			b.WriteString(Escape(line))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
