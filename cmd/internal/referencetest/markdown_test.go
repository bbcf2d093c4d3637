// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// The pages of Markdown have the texts as they are, and the flags in blocks.
func TestCommandPages(t *testing.T) {
	pages, err := commandPages(tree())
	if err != nil || len(pages) != 2 {
		t.Fatal(len(pages), err)
	}
	for name, wants := range map[string][]string{
		"prog.md":     {"# prog\n", "prog does \\<all\\> of mlx5\\_0", "      one    a row\n", "--file FILE_A", "of prog alone", "* [prog sub](prog_sub.md): A subcommand\n"},
		"prog_sub.md": {"# prog sub\n", "```\nprog sub A_B|C_D... [flags]\n```", "--file FILE_A"},
	} {
		page := string(pages[name])
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s does not have %q:\n%s", name, want, page)
			}
		}
		if strings.Contains(page, "\n\n\n") || strings.Contains(page, " \n") || name == "prog_sub.md" && strings.Contains(page, "of prog alone") {
			t.Errorf("%s:\n%s", name, page)
		}
	}
}

// tree is a command with what pages have to show as it is.
func tree() *cobra.Command {
	root := &cobra.Command{Use: "prog", Version: "1.2", Short: "Do it_all *now*", Run: func(*cobra.Command, []string) {}, Long: `prog does <all> of mlx5_0 and mlx5_1:

  one    a row
  two    another row

and [ends].`}
	root.PersistentFlags().String("file", "", "read `FILE_A` or <FILE_B>")
	root.PersistentFlags().Bool("unused", false, "of prog alone")
	sub := &cobra.Command{Use: "sub A_B|C_D...", Short: "A subcommand", Run: func(*cobra.Command, []string) {}}
	cli.Uses(sub, "file")
	root.AddCommand(sub)
	root.AddCommand(&cobra.Command{Use: "secret", Hidden: true, Run: func(*cobra.Command, []string) {}})
	return root
}
