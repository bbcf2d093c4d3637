// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/topo"
)

// topo reads the tree to draw.
func (a *app) topo(m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC) (output, error) {
	// With --gpu or --nic only these devices are shown.
	r, unread := topo.Read(m, gpus, nics, len(a.gpu)+len(a.nic) == 0)
	a.named(&r)
	r.Machine.Notes, r.Partial = a.notes, len(a.unread) > 0
	for i, err := range unread {
		unread[i] = &cli.Unavailable{Err: err}
	}
	return topoOutput(r), errors.Join(append(unread, a.nothing(m, gpus, nics))...)
}

// wideHelp is the help of --wide.
const wideHelp = "show all columns of a table, and fold no line; without it they fit 100 columns"

// topoOutput is the output of topo.
type topoOutput topo.Topology

func (t topoOutput) text(w io.Writer, a *app) error {
	if a.svg {
		return topo.Topology(t).SVG(w, a.verbose)
	}
	return topo.Topology(t).Text(a.screen(w), a.verbose)
}

func (t topoOutput) status() int { return topo.Topology(t).Status() }
