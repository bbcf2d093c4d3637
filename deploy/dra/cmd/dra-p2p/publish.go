// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"

	"k8s.io/client-go/kubernetes"

	"github.com/gpurdma/gpurdma/deploy/dra/binding"
	"github.com/gpurdma/gpurdma/deploy/dra/plugin"
)

// What --publish takes.
const (
	asPairs = "pairs"
	asNICs  = "nics"
)

// What --pcie-root takes.
const (
	ownRoot     = "own"
	partnerRoot = "partner"
)

// published is what is published, and how.
type published struct {
	what, pcieRoot string
	lists          bool
	vendors        []string
}

func (o *published) check() error {
	switch {
	case o.what != asPairs && o.what != asNICs:
		return fmt.Errorf("--publish takes %s or %s, not %q", asPairs, asNICs, o.what)
	case o.pcieRoot != ownRoot && o.pcieRoot != partnerRoot:
		return fmt.Errorf("--pcie-root takes %s or %s, not %q", ownRoot, partnerRoot, o.pcieRoot)
	case o.what == asPairs && (o.pcieRoot != ownRoot || o.lists):
		return fmt.Errorf("--pcie-root and --lists are for --publish %s", asNICs)
	}
	return nil
}

// checkLive refuses proofs of pairs whose GPUs another driver gives away at any time.
func (o *published) checkLive(live bool) error {
	if live && o.what == asNICs {
		return fmt.Errorf("--live is for --publish %s: another driver may give a GPU to a pod while it is tried", asPairs)
	}
	return nil
}

// beside returns how NICs are published beside another driver's GPUs; nil for pairs.
func (o *published) beside(client kubernetes.Interface, node string) *plugin.Beside {
	if o.what == asPairs {
		return nil
	}
	return &plugin.Beside{
		Vendors: o.vendors, OthersRoots: o.pcieRoot == partnerRoot, Lists: o.lists, Published: plugin.PublishedFor(node, client.ResourceV1()),
	}
}

// answer answers the scheduler until the context ends.
func answer(ctx context.Context, client kubernetes.Interface, node string, p *plugin.Plugin, fail func(error)) {
	c := binding.Controller{Client: client, Pool: node, Agree: p.Agree, Log: slog.Default()}
	if err := c.Run(ctx); err != nil {
		fail(err)
	}
}
