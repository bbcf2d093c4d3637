// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Args are a command's arguments, by the names that its usage has for them.
func Args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch n := len(args); {
		case n < len(names):
			return fmt.Errorf("%s is missing: write %s %s", names[n], cmd.CommandPath(), strings.Join(names, " "))
		case n > len(names):
			return fmt.Errorf("%q: nothing comes after %s", args[len(names)], names[len(names)-1])
		}
		return nil
	}
}
