// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"time"
)

// options are the flags, as data.
type options struct {
	device    string
	exporters []string
	sizes     []int64
	rounds    int
	slice     time.Duration
	chosen    bool // the sizes, by -sizes
	through   string
	lists     bool // the bpftrace script reads scatter lists, as ours does
}

// given reports whether a flag was given.
func given(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}
