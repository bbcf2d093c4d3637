// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// flagsOf are the shared flags that each command uses. A command that is not listed uses all of them.
var flagsOf = map[string][]string{
	"topo":     {"json", "output", "root", "sysfs", "proc", "kernel", "config", "gpu", "nic", "skip", "snapshot", "lspci", "lspci-tree"}, // it has no checks: all are left out
	"why":      {"json", "output", "root", "sysfs", "proc", "kernel", "config", "snapshot", "lspci", "lspci-tree"},                       // GPU and NIC are its arguments
	"explain":  {"json", "output"},
	"snapshot": {"json", "output", "root", "sysfs", "proc", "kernel", "config"}, // but for root it says why not
	"diff":     {"json", "output"},
	"report":   {"json", "output"},
	"serve":    {"root", "sysfs", "proc", "kernel", "config", "gpu", "nic", "skip", "snapshot"},
}

// showUsed lets the help and the pages of a command show the flags that it uses, and no others.
func showUsed(root *cobra.Command) {
	for _, c := range root.Commands() {
		if used, ok := flagsOf[c.Name()]; ok {
			cli.Uses(c, used...)
		}
	}
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		defer cli.HideUnused(c)()
		help(c, args)
	})
}

// needs is the kind of value that a flag takes. An empty value comes from a shell variable that is
// not set: without an error p2pcheck would look at this machine, or at all devices, and the user
// would not notice.
var needs = map[string]string{
	"snapshot": "a file", "lspci": "a file", "lspci-tree": "a file", "baseline": "a file", "config": "a file", "nfd": "a file", "proofs": "a file", "since": "a file or a directory", "html": "a file, or -", "output": "a file, or -",
	"root": "a directory", "sysfs": "a directory", "proc": "a directory",
	"gpu": "a GPU's PCI address, name or driver", "nic": "a NIC's name, PCI address or driver",
	"skip":   "a check's ID, a family of them, or all",
	"kernel": "a release (\"6.12.1\")", "pid": "a process's number",
	"size":   "a number of bytes (\"1GiB\")",
	"format": "a name (\"text\")", "listen": "an address and a port",
}

// usesFlags refuses flags that the command does not use.
func usesFlags(cmd *cobra.Command) (err error) {
	if err := cli.Given(cmd, needs); err != nil {
		return err
	}
	if f := cmd.Flags().Lookup("timeout"); f != nil && f.Changed && f.Value.String() == "0s" {
		return errors.New("--timeout 0s: a pair needs time; leave it out for a minute")
	}
	if f := cmd.Flags().Lookup("size"); f != nil && f.Changed && f.Value.String() == "0" {
		return errors.New("--size 0: a proof needs memory; leave it out for 256KiB")
	}
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
