// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// FlagLike reports a value that looks like another flag, because the value was left out: "-o" of "--html -o FILE".
// "-" alone is the standard input or output.
func FlagLike(value string) bool { return len(value) > 1 && value[0] == '-' }

// Apart refuses a command line whose flag that names a file has another flag as its value, and one of which an
// output is an input as well, or two outputs are one file, through links, too:
// the output would replace what the user wants to read, or the other output. outputs and inputs are names of flags, of which a command need not have
// all. read are further files that it reads: its arguments, and files of directories. "-" among the inputs is the
// standard input.
func Apart(cmd *cobra.Command, outputs, inputs []string, read ...string) error {
	type input struct {
		words string
		is    fs.FileInfo
	}
	var all []input
	add := func(words, path string) {
		if is := regular(path); is != nil {
			all = append(all, input{words, is})
		}
	}
	for _, name := range slices.Concat(outputs, inputs) {
		if value := valueOf(cmd, name); FlagLike(value) {
			return fmt.Errorf("--%s has no value: %s looks like another flag; a file of that name is ./%s", name, value, value)
		}
	}
	for _, name := range inputs {
		add("--"+name, valueOf(cmd, name))
	}
	for _, path := range read {
		add(path, path)
	}
	for i, name := range outputs {
		path := valueOf(cmd, name)
		if path == "" || path == "-" {
			continue
		}
		for _, other := range outputs[:i] {
			if twin := valueOf(cmd, other); twin != "" && twin != "-" && same(path, twin) {
				return fmt.Errorf("--%s %s and --%s %s are one file: give each a file of its own", other, twin, name, path)
			}
		}
		out := regular(path)
		for _, in := range all {
			if out != nil && os.SameFile(out, in.is) {
				return fmt.Errorf("--%s %s is a file that is read (%s), and would be replaced: give --%s another file", name, path, in.words, name)
			}
		}
	}
	return nil
}

// same reports that two paths are one regular file, or would be one that does not exist yet.
func same(a, b string) bool {
	if x, y := regular(a), regular(b); x != nil || y != nil {
		return x != nil && y != nil && os.SameFile(x, y)
	}
	for _, path := range []string{a, b} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return false // a device, or not known
		}
	}
	x, err := os.Stat(filepath.Dir(a))
	y, errY := os.Stat(filepath.Dir(b))
	return err == nil && errY == nil && os.SameFile(x, y) && filepath.Base(a) == filepath.Base(b)
}

// valueOf is the value of a flag, "" if the command has none of that name.
func valueOf(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// regular is the file at a path, or that the standard input reads for "-"; nil if it is no regular file.
func regular(path string) fs.FileInfo {
	is, err := os.Stat(path)
	if path == "-" {
		is, err = os.Stdin.Stat()
	}
	if err != nil || !is.Mode().IsRegular() {
		return nil
	}
	return is
}

// NamedTwice reports that several words of a command line name the file that an output has. A command asks this
// where its flags are not parsed, or not all of them, and an error is about to be written to the output.
func NamedTwice(output string, words []string) bool {
	out := regular(output)
	if out == nil {
		return false
	}
	n := 0
	for _, word := range words {
		for _, path := range valuesIn(word) {
			if is := regular(path); is != nil && os.SameFile(out, is) {
				n++
				break
			}
		}
	}
	return n > 1
}

// valuesIn are the paths that a word of a command line may have: "FILE", "--flag=FILE", "-oFILE".
func valuesIn(word string) []string {
	paths := []string{word}
	if _, value, ok := strings.Cut(word, "="); ok {
		paths = append(paths, value)
	}
	if len(word) > 2 && word[0] == '-' && word[1] != '-' {
		paths = append(paths, word[2:])
	}
	return paths
}
