// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/formats"
)

// completeFlags lets the shell complete the names of this machine's devices, of checks and of formats.
func (a *app) completeFlags(root *cobra.Command) {
	// A process number is not completed: file names would be wrong.
	if err := root.RegisterFlagCompletionFunc("pid", cobra.NoFileCompletions); err != nil {
		panic(err)
	}
	complete := func(flag string, list func() []string) {
		// It fails only for a flag that does not exist.
		if err := root.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return list(), cobra.ShellCompDirectiveNoFileComp
		}); err != nil {
			panic(err)
		}
	}
	complete("gpu", func() (names []string) {
		gpus, _ := drivers.GPUs(a.source.Open())
		for _, g := range gpus {
			names = append(names, g.Name)
		}
		return names
	})
	complete("nic", func() (names []string) {
		nics, _ := drivers.NICs(a.source.Open())
		for _, n := range nics {
			names = append(names, n.Name)
		}
		return names
	})
	complete("skip", func() []string {
		return append(append([]string{"all"}, checkFamilies()...), checkNames()...)
	})
	complete("format", func() []string { return append([]string{"text", "json"}, slices.Sorted(maps.Keys(formats.All))...) })
	for _, flag := range []string{"root", "sysfs", "proc"} {
		if err := root.MarkPersistentFlagDirname(flag); err != nil {
			panic(err)
		}
	}
}
