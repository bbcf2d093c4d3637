// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func gpuAt(t *testing.T, at string) drivers.GPU {
	t.Helper()
	a, err := pciaddr.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return drivers.GPU{Name: a.String(), Exporter: drivers.Exporter{PCI: &a, Driver: "amdgpu"}}
}

// Only bytes behind this GPU's own BARs are direct.
func TestOutcome(t *testing.T) {
	g := gpuAt(t, "0000:03:00.0")
	bar := func(devices ...string) []placement.Place {
		var out []placement.Place
		for _, d := range devices {
			out = append(out, placement.Place{Kind: placement.KindBAR, Device: d, Bytes: 1})
		}
		return out
	}
	for _, c := range []struct {
		pl   placement.Placement
		want chain.Outcome
	}{
		{placement.Placement{Memory: placement.PeerToPeer, Places: bar("0000:03:00.0")}, chain.Direct},
		{placement.Placement{Memory: placement.PeerToPeer, Places: bar("0000:03:00.0", "0000:04:00.0")}, chain.OutcomeUnknown},
		{placement.Placement{Memory: placement.PeerToPeer, Places: bar("")}, chain.OutcomeUnknown},
		{placement.Placement{Memory: placement.PeerToPeer}, chain.OutcomeUnknown},
		{placement.Placement{Memory: placement.CoherentGPUMemory}, chain.Direct},
		{placement.Placement{Memory: placement.SystemMemory}, chain.Staged},
		{placement.Placement{Memory: placement.Mixed, Places: bar("0000:03:00.0")}, chain.Staged},
		{placement.Placement{Memory: placement.Bounced}, chain.Staged},
		{placement.Placement{Memory: placement.Stale}, chain.OutcomeUnknown},
		{placement.Placement{Memory: placement.NotMapped}, chain.OutcomeUnknown},
		{placement.Placement{Reason: "an event was lost", Likely: placement.PeerToPeer}, chain.OutcomeUnknown},
	} {
		if got, why := outcomeOf(c.pl, g); got != c.want || why == "" {
			t.Errorf("%v: %v, %q", c.pl, got, why)
		}
	}
}

// An error counts for the direction that it came from. If the direction is not known, it
// counts for none.
func TestMoved(t *testing.T) {
	failure := func(err error) error { return &canary.Failure{Report: &canary.Report{}, Err: err} }
	for name, c := range map[string]struct {
		err         error
		write, read p2p.Result
	}{
		"none":              {nil, p2p.ResultPass, p2p.ResultPass},
		"WRITE ended":       {failure(&canary.TransferError{Op: "RDMA WRITE", Err: canary.ErrStalled}), p2p.ResultFail, p2p.ResultSkip},
		"READ ended":        {failure(&canary.TransferError{Op: "RDMA READ", Err: canary.ErrStalled}), p2p.ResultPass, p2p.ResultFail},
		"WRITE, wrong":      {failure(&canary.Mismatch{What: "the buffer after an RDMA WRITE"}), p2p.ResultFail, p2p.ResultSkip},
		"WRITE, beside":     {failure(&canary.Mismatch{What: "guard before the range"}), p2p.ResultFail, p2p.ResultSkip},
		"READ, wrong":       {failure(&canary.Mismatch{What: "RDMA READ of what the CPU wrote"}), p2p.ResultPass, p2p.ResultFail},
		"interrupted":       {context.Canceled, p2p.ResultUnknown, p2p.ResultSkip},
		"the CPU's own way": {fmt.Errorf("write the buffer at offset 0: %w", unix.EIO), p2p.ResultUnknown, p2p.ResultSkip},
	} {
		if write, read := moved(c.err, 7); write.Result != c.write || read.Result != c.read || write.Detail == "" || read.Detail == "" {
			t.Errorf("%s: %+v, %+v", name, write, read)
		}
	}
}

// A request that did not reach the kernel is not a refusal of the kernel.
func TestAsked(t *testing.T) {
	gpu := ibvfd.MRAttr{Kind: ibvfd.DMABufFD}
	for _, c := range []struct {
		err  ibvfd.RegError
		want bool
	}{
		{ibvfd.RegError{Attr: gpu, Errno: unix.EINVAL, Earliest: fault.StageUverbs, Latest: fault.StageDriver}, true},
		{ibvfd.RegError{Attr: gpu, Errno: unix.EINVAL, Earliest: fault.StageArgs, Latest: fault.StageArgs}, false},
		{ibvfd.RegError{Attr: gpu, Errno: unix.EOPNOTSUPP, Earliest: fault.StageProvider, Latest: fault.StageProvider}, false},
		{ibvfd.RegError{Attr: ibvfd.MRAttr{Kind: ibvfd.HostMemory}, Errno: unix.ENOMEM, Latest: fault.StageDriver}, false},
	} {
		if got := asked(&c.err); got != c.want {
			t.Errorf("%v: %v", &c.err, got)
		}
	}
}

func TestMemoryOf(t *testing.T) {
	g, other := gpuAt(t, "0000:03:00.0"), gpuAt(t, "0000:04:00.0")
	on := func(g drivers.GPU, d gpualloc.Description) gpualloc.Description {
		d.PCI = g.Exporter.PCI
		return d
	}
	system := on(g, gpualloc.Description{Spec: "drm:a/system", Kind: gpualloc.KindSystem, Available: true})
	vram := on(g, gpualloc.Description{Spec: "drm:a", Kind: gpualloc.KindVRAM, Available: true})
	only := on(g, gpualloc.Description{Spec: "drm:a/vram-only", Kind: gpualloc.KindVRAM, Available: true})
	closed := on(g, gpualloc.Description{Spec: "drm:a", Why: "EACCES", Remedy: "join render"})
	elsewhere := on(other, gpualloc.Description{Spec: "drm:b", Kind: gpualloc.KindVRAM, Available: true})
	heap := gpualloc.Description{Spec: "heap:system", Available: true}
	for name, c := range map[string]struct {
		all  []gpualloc.Description
		want string
		err  string
	}{
		"VRAM":        {[]gpualloc.Description{heap, elsewhere, system, vram, only}, "drm:a", ""},
		"system":      {[]gpualloc.Description{heap, elsewhere, system}, "drm:a/system", ""},
		"not allowed": {[]gpualloc.Description{heap, closed}, "", "join render"},
		"nothing":     {[]gpualloc.Description{heap, elsewhere}, "", "0000:03:00.0"},
	} {
		d, err := memoryOf(g, c.all)
		if d.Spec != c.want || (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || !errors.Is(err, gpualloc.ErrUnavailable)) {
			t.Errorf("%s: %q, %v", name, d.Spec, err)
		}
	}
}
