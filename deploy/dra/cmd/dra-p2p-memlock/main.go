// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/gpurdma/gpurdma/deploy/dra/memlock"
)

func main() {
	log, _ := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0) // without it, the standard error has the reason
	hook(os.Args[1:], os.Stdin, os.Stderr, log)
}

// hook raises the limit, or says why not.
func hook(args []string, in io.Reader, stderr io.Writer, log *os.File) {
	err := raise(args, in)
	if err == nil {
		return
	}
	fmt.Fprintln(stderr, err)
	if log != nil {
		fmt.Fprintf(log, "<4>%v\n", err) // a warning of the kernel's log
	}
}

func raise(args []string, in io.Reader) error {
	if len(args) != 1 {
		return fmt.Errorf("%s: want one argument, the limit in bytes or %v", memlock.Program, memlock.Unlimited)
	}
	limit, err := memlock.ParseLimit(args[0])
	if err != nil {
		return fmt.Errorf("%s: %w", memlock.Program, err)
	}
	c, err := memlock.ReadContainer(in)
	if err != nil {
		return fmt.Errorf("%s: %w", memlock.Program, err)
	}
	if err := memlock.Raise(c.PID, limit); err != nil {
		return fmt.Errorf("%s: container %.100q: %w; it starts with the limit that it has", memlock.Program, c.ID, err)
	}
	return nil
}
