// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/gpurdma/gpurdma/testbed/arch"
	"github.com/gpurdma/gpurdma/testbed/kernel"
	"github.com/gpurdma/gpurdma/testbed/layout"
	"github.com/gpurdma/gpurdma/testbed/wire"
)

// guestResults is where commands in the guest find the writable directory.
const guestResults = wire.Results

// Exit statuses of the test bed itself. 124 and 125 are what timeout(1) and
// container runtimes use for the same things.
const (
	statusUnavailable = 77 // this machine has no way to get the kernel; 77 is how test programs say that they cannot run

	statusKernel   = 121 // the guest's kernel reported a fault
	statusWatchdog = 124 // the run was ended by the watchdog
	statusTestbed  = 125 // the test bed could not run the command

	statusInterrupted = 130 // as a shell says it for SIGINT
)

// defaultKernel is GPURDMA_KERNEL, or the default series of the guests.
func defaultKernel() string {
	if s := os.Getenv("GPURDMA_KERNEL"); s != "" {
		return s
	}
	a, err := arch.Lookup(os.Getenv("GPURDMA_FLAVOUR"))
	if err != nil {
		return kernel.Default // findTree reports it
	}
	return kernel.DefaultOn(a)
}

// findTree is the checkout that the current directory is in, for guests of the flavour
// that GPURDMA_FLAVOUR names.
func findTree() (layout.Tree, error) {
	a, err := arch.Lookup(os.Getenv("GPURDMA_FLAVOUR"))
	if err != nil {
		return layout.Tree{}, fmt.Errorf("GPURDMA_FLAVOUR: %w", err)
	}
	t, err := layout.Find(".")
	return t.For(a), err
}

// defaultSlow is GPURDMA_SLOW, or 1 without it. A text that is no number gives 0, which is
// refused as -slow 0 is.
func defaultSlow() int {
	s := os.Getenv("GPURDMA_SLOW")
	if s == "" {
		return 1
	}
	n, _ := strconv.Atoi(s)
	return n
}

func isNotFetched(err error) bool { return errors.Is(err, kernel.ErrNotFetched) }
