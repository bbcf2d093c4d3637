// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// An output that is an input is refused by whichever name, and files that are two, or none, are not.
func TestApart(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("in"), []byte("in"), 0o600))
	must(t, os.WriteFile(at("other"), []byte("other"), 0o600))
	must(t, os.Symlink("in", at("soft")))
	must(t, os.Symlink(dir, at("dir")))
	must(t, os.Link(at("in"), at("hard")))
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	f, err := os.Open(at("in"))
	must(t, err)
	defer f.Close()
	os.Stdin = f
	for _, c := range []struct {
		flags []string
		read  []string
		want  string // "" if it is accepted
	}{
		{[]string{"--in", at("in"), "--out", at("in")}, nil, "--out " + at("in") + " is a file that is read (--in)"},
		{[]string{"--in", at("in"), "--out", at("soft")}, nil, "(--in)"},
		{[]string{"--in", at("soft"), "--out", at("in")}, nil, "(--in)"},
		{[]string{"--in", at("in"), "--out", at("hard")}, nil, "(--in)"},
		{[]string{"--in", at("in"), "--out", at("dir/in")}, nil, "(--in)"},
		{[]string{"--in", "-", "--out", at("in")}, nil, "(--in)"},
		{[]string{"--out", at("in")}, []string{at("other"), at("in")}, "(" + at("in") + ")"},
		{[]string{"--in", at("in"), "--out", at("other")}, nil, ""},
		{[]string{"--in", at("in"), "--out", at("none")}, nil, ""},
		{[]string{"--in", at("none"), "--out", at("none")}, nil, ""},
		{[]string{"--in", "-", "--out", "-"}, nil, ""},
		{[]string{"--in", "/dev/null", "--out", "/dev/null"}, nil, ""},
		{[]string{"--out", at("in")}, nil, ""},
		{[]string{"--out", "--also", "x"}, nil, "--out has no value: --also looks like another flag; a file of that name is ./--also"},
		{[]string{"--in", "-v"}, nil, "--in has no value: -v looks like another flag; a file of that name is ./-v"},
		{[]string{"--out=-v"}, nil, "--out has no value: -v"},
		{[]string{"--out", "./-v", "--in", "a-b"}, nil, ""},
		{[]string{"--out", at("in"), "--also", at("in")}, nil, "--out " + at("in") + " and --also " + at("in") + " are one file"},
		{[]string{"--out", at("in"), "--also", at("soft")}, nil, "are one file"},
		{[]string{"--out", at("none"), "--also", at("dir/none")}, nil, "are one file"},
		{[]string{"--out", at("none"), "--also", at("in")}, nil, ""},
		{[]string{"--out", at("no/dir"), "--also", at("no/dir")}, nil, ""}, // neither can be written
		{[]string{"--out", "/dev/null", "--also", "/dev/null"}, nil, ""},
		{[]string{"--out", "-", "--also", "-"}, nil, ""},
	} {
		cmd := &cobra.Command{}
		cmd.Flags().String("in", "", "")
		cmd.Flags().String("out", "", "")
		cmd.Flags().String("also", "", "")
		must(t, cmd.ParseFlags(c.flags))
		err := Apart(cmd, []string{"out", "absent", "also"}, []string{"absent", "in"}, c.read...)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v, want %q", c.flags, c.read, err, c.want)
		}
	}
}

func TestNamedTwice(t *testing.T) {
	dir := t.TempDir()
	in, other := filepath.Join(dir, "in"), filepath.Join(dir, "other")
	must(t, os.WriteFile(in, nil, 0o600))
	must(t, os.WriteFile(other, nil, 0o600))
	for words, want := range map[string]bool{
		"-o IN --snapshot IN": true, "-oIN --snapshot=IN": true, "--output=IN report IN": true,
		"-o IN --snapshot OTHER": false, "--output=IN": false, "-o NONE --snapshot NONE": false,
	} {
		output := in
		if strings.Contains(words, "NONE") {
			output = filepath.Join(dir, "none")
		}
		line := strings.NewReplacer("IN", in, "OTHER", other, "NONE", output).Replace(words)
		if got := NamedTwice(output, strings.Fields(line)); got != want {
			t.Errorf("%s: %v", words, got)
		}
	}
}
