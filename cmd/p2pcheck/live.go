// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc/nvml"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/p2p"
)

// live asks the machine that this is. It registers nothing.
func live() p2p.Live { return p2p.Live{BAR1: bar1, Imports: ibvfd.Probe, Opens: opens} }

func bar1() (map[p2p.Addr]p2p.Usage, error) {
	gpus, err := nvml.GPUs()
	out := map[p2p.Addr]p2p.Usage{}
	for _, g := range gpus {
		a, e := p2p.ParseAddr(g.PCI.String())
		if e == nil && g.BAR1 != nil && g.BAR1.Total > 0 && g.BAR1.Used >= 0 {
			out[a] = p2p.Usage{Total: uint64(g.BAR1.Total), Used: uint64(g.BAR1.Used)}
		}
		err = errors.Join(err, e)
	}
	return out, err
}

func opens(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return f.Close()
}
