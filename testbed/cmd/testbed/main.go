// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/gpurdma/gpurdma/testbed/guest"
	"github.com/gpurdma/gpurdma/testbed/kernel"
)

// command is one subcommand. run returns the process's exit status.
type command struct {
	name, args, help string
	run              func(ctx context.Context, args []string) (int, error)
}

// commands is filled by init, since the help refers to the table.
var commands []command

func init() {
	commands = []command{
		{"fetch", "-kernel SERIES", "put a kernel, its headers and its source into the cache", runFetch},
		{"run", "[flags] -- COMMAND [ARGUMENT...]", "run a command in the guest", runRun},
		{"exec", "[flags] BINARY [ARGUMENT...]", "for go test -exec: run a test binary in the guest", runExec},
		{"test", "[flags] [PACKAGE...]", "run the tests meant for the guest, and check the required list", runTest},
		{"shell", "[flags]", "an interactive shell in the guest", runShell},
	}
}

func main() {
	if guest.IsInit() {
		// The same static binary is the guest's init: there is no second
		// program that could be of another version.
		guest.Main()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(dispatch(ctx, os.Args[1:]))
}

func dispatch(ctx context.Context, args []string) int {
	if len(args) == 0 {
		usage()
		return statusTestbed
	}
	for _, c := range commands {
		if c.name == args[0] {
			status, err := c.run(ctx, args[1:])
			if err != nil {
				if errors.Is(err, flag.ErrHelp) {
					return 0
				}
				fmt.Fprintf(os.Stderr, "testbed %s: %v\n", c.name, err)
				if errors.Is(err, kernel.ErrUnavailable) {
					return statusUnavailable
				}
				if status == 0 {
					status = statusTestbed
				}
			}
			return status
		}
	}
	if s := args[0]; s == "help" || s == "-h" || s == "-help" || s == "--help" {
		usage()
		return 0
	}
	fmt.Fprintf(os.Stderr, "testbed: unknown command %q\n", args[0])
	usage()
	return statusTestbed
}

func usage() {
	var b strings.Builder
	b.WriteString("usage:\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "  testbed %-6s %-34s %s\n", c.name, c.args, c.help)
	}
	fmt.Fprintf(&b, "exit status: the command's own, or %d: the kernel cannot be had here, %d: the guest's kernel reported a fault, %d: watchdog, %d: the test bed failed\n",
		statusUnavailable, statusKernel, statusWatchdog, statusTestbed)
	os.Stderr.WriteString(b.String())
}
