// SPDX-License-Identifier: Apache-2.0

package manual

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

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

func TestPages(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	var stderr bytes.Buffer
	if status := Main(tree(), []string{dir}, &stderr); status != 0 {
		t.Fatal(status, &stderr)
	}
	var files []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(name, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"man/man1/prog.1", "man/man1/prog-sub.1", "bash-completion/completions/prog", "zsh/site-functions/_prog", "fish/vendor_completions.d/prog.fish"} {
		if !slices.Contains(files, want) {
			t.Errorf("%s is not written: %q", want, files)
		}
	}
	if slices.Contains(files, "man/man1/prog-secret.1") {
		t.Error("a hidden command has a page")
	}
	for file, wants := range map[string][]string{
		"prog.1": {`.TH "PROG" "1" "Nov 2023" "prog 1.2" "User Commands"`, "Do it_all *now*", "prog does <all> of mlx5_0 and mlx5_1:",
			".EX\n  one    a row\n  two    another row\n.EE", "and [ends].", `read FILE_A or <FILE_B>`, "prog-sub(1)", `--unused\fP[=true|false]`, `--help\fP[=true|false]`},
		"prog-sub.1": {`prog sub A_B|C_D...`, "prog(1)", `read FILE_A or <FILE_B>`},
	} {
		text, err := os.ReadFile(filepath.Join(dir, "man/man1", file))
		if err != nil {
			t.Fatal(err)
		}
		page := strings.NewReplacer(`\&`, "", `\_`, "_", `\-`, "-", `\[la]`, "<", `\[ra]`, ">", "&lt;", "<", "&gt;", ">").Replace(string(text))
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s does not have %q: %s", file, want, page)
			}
		}
		if strings.Contains(page, "of prog alone") != (file == "prog.1") {
			t.Errorf("%s: a flag that the command does not use: %s", file, page)
		}
	}
}

func TestMainRefuses(t *testing.T) {
	for _, tt := range []struct {
		epoch string
		args  []string
		says  string
	}{
		{"1", nil, "one directory"},
		{"1", []string{"a", "b"}, "one directory"},
		{"", []string{t.TempDir()}, "SOURCE_DATE_EPOCH"},
		{"today", []string{t.TempDir()}, `"today"`},
		{"1", []string{"/dev/null/none"}, "/dev/null"},
	} {
		t.Setenv("SOURCE_DATE_EPOCH", tt.epoch)
		var stderr bytes.Buffer
		if status := Main(tree(), tt.args, &stderr); status != 2 || !strings.Contains(stderr.String(), tt.says) {
			t.Errorf("%q %q: status %d: %s", tt.epoch, tt.args, status, &stderr)
		}
	}
}
