// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// uses is the annotation of a command that uses only some of its parents' flags.
const uses = "uses"

// Uses says which of its parents' flags a command uses: its help and its pages show no others.
func Uses(c *cobra.Command, flags ...string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[uses] = strings.Join(flags, " ")
}

// HideUnused hides the parents' flags that a command does not use, until restore is called: the flags are
// shared by all commands.
func HideUnused(c *cobra.Command) (restore func()) {
	used, ok := c.Annotations[uses]
	if !ok {
		return func() {}
	}
	var hidden []*pflag.Flag
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !slices.Contains(strings.Fields(used), f.Name) {
			f.Hidden = true
			hidden = append(hidden, f)
		}
	})
	return func() {
		for _, f := range hidden {
			f.Hidden = false
		}
	}
}
