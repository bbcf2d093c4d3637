// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// once is a flag's word that is taken once: of two, the first would be lost.
type once struct {
	to    *string
	kind  string // what --help shows for the word
	given bool
}

// OnceVar defines a flag whose word may be given once. kind is what --help shows for the word.
func OnceVar(cmd *cobra.Command, to *string, name, kind, value, usage string) {
	*to = value
	cmd.Flags().Var(&once{to: to, kind: kind}, name, usage)
}

// Set implements pflag.Value.
func (o *once) Set(s string) error {
	if o.given {
		return fmt.Errorf("%q was given before, and only one is taken: run the command for each", *o.to)
	}
	*o.to, o.given = s, true
	return nil
}

func (o *once) String() string {
	if o.to == nil { // pflag asks a zero one
		return ""
	}
	return *o.to
}

// Type implements pflag.Value.
func (o *once) Type() string { return o.kind }
