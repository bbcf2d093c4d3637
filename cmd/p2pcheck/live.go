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

// here reports that it is this machine that is looked at, as it is: the file of
// its configuration may be named.
func here(s p2p.Source) bool { return s == p2p.Source{Config: s.Config} }

// asked asks the drivers of which it is not known whether they import dma-bufs.
func asked(nics []p2p.NIC, imports func(string) (ibvfd.Support, error)) {
	for i := range nics {
		if nics[i].Importer.Kind != p2p.KindUnknown {
			continue
		}
		switch s, err := imports(nics[i].Name); {
		case err != nil:
		case s.DMABufKernel == ibvfd.Yes:
			nics[i].Importer.Imports = true
		case s.DMABufKernel == ibvfd.No:
			nics[i].Importer.Kind = p2p.NoImporter
		}
	}
}

// answers asks the machine that this is. It registers nothing.
func answers() p2p.Live { return p2p.Live{BAR1: bar1, Imports: ibvfd.Probe, Opens: opens} }

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
