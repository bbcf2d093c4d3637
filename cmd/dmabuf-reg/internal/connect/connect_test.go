// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/golden"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/trial"
	"github.com/gpurdma/gpurdma/internal/engine"
)

func TestPlan(t *testing.T) {
	f := &params{both: true, work: talk.Ops(), bytes: []int64{1, 2}}
	list := f.plan()
	if len(list) != 2*(3*2+1) || list[0] != (trial.Planned{Op: talk.Write, Direction: trial.Out, Size: 1}) || list[1] != (trial.Planned{Op: talk.Write, Direction: trial.In, Size: 1}) || list[len(list)-1] != (trial.Planned{Op: talk.Atomic, Direction: trial.In, Size: 8}) {
		t.Errorf("%+v", list)
	}
}

// What people see.
func TestConnectTables(t *testing.T) {
	local := station.Side{
		Memory: buffer.Description{Spec: "drm:renderD128", Exporter: "drm", Kind: "vram", Size: 4 << 20},
		NIC:    "mlx5_0", NICReason: "nearest to 0000:03:00.0", Policy: "prefer", Path: "direct", Route: "ibv_reg_dmabuf_mr", Why: "registered by ibv_reg_dmabuf_mr",
	}
	there := peer.Server{Spec: "udmabuf", NIC: "rxe0", Size: 4 << 20, Path: "staged", Why: "asked for by --policy"}
	over := link.WayOf(engine.ConnPath{
		NIC: "mlx5_0", Port: 1, GID: netip.MustParseAddr("10.0.0.2"), Peer: netip.MustParseAddr("10.0.0.1"),
		Why: "TCP comes through it: RoCE v2",
	})
	row := func(op, direction string, size int64, ok bool) trial.Row {
		r := trial.Row{Op: op, Direction: direction, Size: size, Count: 16, Elapsed: time.Millisecond, Rate: float64(size) * 16e3, OK: ok}
		if ok {
			r.Verified = size*16 + trial.Behind
		}
		return r
	}
	good := []trial.Row{
		row("write", trial.Out, 64, true), row("write", trial.In, 64, true), row("read", trial.Out, 1<<20, true), row("read", trial.In, 1<<20, true),
		row("send", trial.Out, 64, true), row("send", trial.In, 64, true), row("atomic", trial.Out, 8, true), row("atomic", trial.In, 8, true),
	}
	golden.Tables(t, map[string]golden.Result{
		"connect":             &Result{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Rows: good, Planned: len(good)},
		"connect-interrupted": &Result{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Rows: good[:3], Planned: len(good), interrupted: true},
		"connect-failed":      &Result{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Rows: append(good[:3:3], row("read", trial.In, 1<<20, false)), Planned: len(good)},
		"connect-at-once":     &Result{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Planned: len(good), interrupted: true},
		"connect-none":        &Result{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Planned: len(good)},
	})
}
