// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpurdma/gpurdma/deploy/dra/memlock"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/plugin"
	"github.com/gpurdma/gpurdma/deploy/dra/proving"
	"github.com/gpurdma/gpurdma/deploy/dra/uevent"
)

// prover returns how pairs are tried; nil without --live, and where no pair can be proven. The reason is said once.
func (o *options) prover(client kubernetes.Interface) *plugin.Live {
	if !o.live {
		return nil
	}
	p := &proving.Prover{Root: o.root, File: o.proofs, Options: node.Options{Software: o.software}}
	if err := p.Lacks(); err != nil {
		slog.Warn("--live: the driver tries no pair", "error", err)
		return nil
	}
	s := &proving.Slices{Client: client.ResourceV1(), Node: o.node}
	return &plugin.Live{Open: func() (plugin.Prover, error) { return p.Open() }, Published: s.Tainted, Every: o.liveEvery, Again: o.liveAgain}
}

// hooks installs the hook of --memlock in a directory of the host. If the flag was not given, and the hook's program
// is not there, containers have the limit of the runtime.
func (o *options) hooks(dir string) ([]*specs.Hook, error) {
	limit, err := memlock.ParseFlag(o.memlock)
	if err != nil || limit == 0 {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h, err := memlock.Install(filepath.Dir(self), dir, limit)
	if errors.Is(err, memlock.ErrNoProgram) && !o.memlockGiven {
		slog.Warn("containers keep the limit of locked memory that the runtime gives them", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--memlock: %w", err)
	}
	return []*specs.Hook{h}, nil
}

// watch looks again when devices of the machine change, until the context ends. Without the kernel's messages,
// the driver looks every so often all the same.
func (o *options) watch(ctx context.Context, p *plugin.Plugin) {
	w, err := uevent.Open()
	if err == nil {
		err = w.Watch(ctx, func() {
			slog.Debug("devices of the machine have changed")
			p.Again()
		})
	}
	if err != nil {
		slog.Warn("the driver sees changes only at its next look", "every", o.every, "error", err)
	}
}
