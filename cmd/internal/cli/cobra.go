// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Strict makes Cobra's own commands refuse what they do not know: they would print
// their help, and end as if that had been asked for.
func Strict(root *cobra.Command) {
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
