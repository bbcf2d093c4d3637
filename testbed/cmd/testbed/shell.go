// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/gpurdma/gpurdma/testbed/vm"
)

// runShell gives an interactive shell on a terminal of the guest.
func runShell(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("testbed shell", flag.ContinueOnError)
	var b bootFlags
	b.register(fs, 0)
	node := fs.String("node", "", "`node` to run on; the first by default")
	if err := fs.Parse(args); err != nil {
		return 0, err
	}
	in := int(os.Stdin.Fd())
	if !term.IsTerminal(in) {
		return 0, errors.New("standard input is not a terminal; to run a command, use testbed run")
	}
	o, err := b.options(ctx)
	if err != nil {
		return 0, err
	}
	wd, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	logf("booting Linux %s; the guest's files are the host's, changes are dropped at exit", o.Kernel.Release)
	v, err := vm.Start(ctx, o)
	if err != nil {
		return outcome(0, err)
	}
	cols, rows, err := term.GetSize(in)
	if err != nil {
		cols, rows = 80, 24
	}
	old, err := term.MakeRaw(in)
	if err != nil {
		v.Kill()
		return 0, err
	}
	status, err := v.Run(ctx, vm.Cmd{
		Node: *node, Args: append([]string{"/bin/bash", "-i"}, fs.Args()...), Dir: wd, Env: environ(o),
		Stdin: os.Stdin, Stdout: os.Stdout, TTY: true, Timeout: b.timeout,
		Rows: uint16(rows), Cols: uint16(cols), Resize: resizes(ctx, in),
	})
	term.Restore(in, old)
	return finish(v, status, err)
}

// resizes reports the terminal's size whenever it changes.
func resizes(ctx context.Context, fd int) <-chan vm.Size {
	sizes := make(chan vm.Size)
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	go func() {
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			cols, rows, err := term.GetSize(fd)
			if err != nil {
				continue
			}
			select {
			case sizes <- vm.Size{Rows: uint16(rows), Cols: uint16(cols)}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}
