// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagsOf are, of the flags that all commands have, those that a command goes by.
// One that is not here goes by all.
var flagsOf = map[string][]string{
	"topo":     {"json", "output", "root", "sysfs", "proc", "kernel", "config", "gpu", "nic", "skip", "snapshot"}, // it has no checks: all are left out
	"explain":  {"json", "output"},
	"snapshot": {"json", "output", "root", "sysfs", "proc", "kernel", "config"}, // but for root it says why not
	"diff":     {"json", "output"},
	"report":   {"json", "output"},
	"serve":    {"json", "root", "sysfs", "proc", "kernel", "config", "gpu", "nic", "skip", "snapshot"},
}

// usesFlags refuses flags that the command would not look at: who gave them meant
// something.
func usesFlags(cmd *cobra.Command, _ []string) (err error) {
	used, ok := flagsOf[cmd.Name()]
	if !ok {
		return nil
	}
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && !slices.Contains(used, f.Name) && err == nil {
			err = fmt.Errorf("%s has no --%s", cmd.Name(), f.Name)
		}
	})
	return err
}
