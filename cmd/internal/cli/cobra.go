// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurdma/gpurdma/internal/human"
)

// Strict makes Cobra's own commands refuse what they do not know: they would print
// their help, and end as if that had been asked for. A flag's value that is refused is
// told in words.
func Strict(root *cobra.Command) {
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return inWords(err) })
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(c *cobra.Command, args []string) error {
				if _, rest, err := c.Root().Find(args); err != nil || len(rest) > 0 {
					return fmt.Errorf("no command is called %q", strings.Join(args, " "))
				}
				return nil
			}
		case "completion":
			c.Args = func(c *cobra.Command, args []string) error {
				var shells []string
				for _, shell := range c.Commands() {
					shells = append(shells, shell.Name())
				}
				if len(args) == 0 {
					return fmt.Errorf("completion is for one of %s", strings.Join(shells, ", "))
				}
				return fmt.Errorf("no shell is called %q: there are %s", args[0], strings.Join(shells, ", "))
			}
			// Only of a command that runs are arguments looked at.
			c.RunE = func(*cobra.Command, []string) error { return nil }
		}
	}
}

// FoldFlags folds the texts of a command's flags, and of its subcommands', as all text is folded.
func FoldFlags(root *cobra.Command) {
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", human.Columns)))
}

// NoArgs refuses arguments of a command that takes none.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q: %s takes no argument", args[0], cmd.Name())
	}
	return nil
}

// takes says what flags of pflag's own types take, by their type's name.
var takes = map[string]string{
	"bool": "true or false", "int": "a whole number", "uint64": "a whole number, not below 0",
	"duration": "a time, such as 30s, 5m or 1h30m", "intSlice": "whole numbers, comma separated",
	"uintSlice": "whole numbers, not below 0, comma separated",
}

// inWords says what a flag takes where strconv would say which of its functions
// failed. Flags of our own types have words already.
func inWords(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) || takes[bad.GetFlag().Value.Type()] == "" {
		return err
	}
	what := "it takes " + takes[bad.GetFlag().Value.Type()]
	if outOfRange(bad.GetValue(), bad.GetFlag().Value.Type()) {
		what += ", and one of at most 64 bits"
	}
	return fmt.Errorf("invalid argument %q for \"--%s\" flag: %s", bad.GetValue(), bad.GetFlag().Name, what)
}

// outOfRange says whether a value has a whole number that no 64 bits hold: pflag's own error does not tell
// that from a word.
func outOfRange(value, kind string) bool {
	for part := range strings.SplitSeq(value, ",") {
		_, err := strconv.ParseInt(part, 0, 64)
		if strings.HasPrefix(kind, "uint") {
			_, err = strconv.ParseUint(part, 0, 64)
		}
		if errors.Is(err, strconv.ErrRange) {
			return true
		}
	}
	return false
}

// Remembered keeps the first error of a writer: Cobra looks at none.
type Remembered struct {
	io.Writer
	Err error
}

func (r *Remembered) Write(p []byte) (int, error) {
	if r.Err == nil {
		_, r.Err = r.Writer.Write(p)
	}
	return len(p), nil
}
