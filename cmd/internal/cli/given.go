// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Given refuses flags of the command line with an empty value. needs has the flags that
// it checks, and for each what the flag needs, in words. A script passes an empty value
// when it uses a variable that is not set.
func Given(cmd *cobra.Command, needs map[string]string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		empty := f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			empty = len(list.GetSlice()) == 0 || slices.Contains(list.GetSlice(), "")
		}
		if what, ok := needs[f.Name]; ok && empty && err == nil {
			err = fmt.Errorf("--%s needs %s", f.Name, what)
		}
	})
	return err
}
