// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/golden"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/internal/engine"
)

func TestPlan(t *testing.T) {
	f := &connectFlags{both: true, work: talk.Ops(), bytes: []int64{1, 2}}
	list := f.plan()
	if len(list) != 2*(3*2+1) || list[0] != (planned{talk.Write, out, 1}) || list[1] != (planned{talk.Write, in, 1}) || list[len(list)-1] != (planned{talk.Atomic, in, 8}) {
		t.Errorf("%+v", list)
	}
}

// What people see.
func TestConnectTables(t *testing.T) {
	local := side{
		Memory: buffer.Description{Spec: "drm:renderD128", Exporter: "drm", Kind: "vram", Size: 4 << 20},
		NIC:    "mlx5_0", NICReason: "nearest to 0000:03:00.0", Policy: "prefer", Path: "direct", Route: "ibv_reg_dmabuf_mr", Why: "registered by ibv_reg_dmabuf_mr",
	}
	there := serverSide{Spec: "udmabuf", NIC: "rxe0", Size: 4 << 20, Staged: true, Why: "staged: asked for by --policy"}
	over := overOf(engine.ConnPath{
		NIC: "mlx5_0", Port: 1, GID: netip.MustParseAddr("10.0.0.2"), Peer: netip.MustParseAddr("10.0.0.1"),
		Why: "TCP comes through it: RoCE v2",
	})
	row := func(op, direction string, size int64, ok bool) connectRow {
		r := connectRow{Op: op, Direction: direction, Size: size, Count: 16, Elapsed: time.Millisecond, Rate: float64(size) * 16e3, OK: ok}
		if ok {
			r.Verified = size*16 + behind
		}
		return r
	}
	good := []connectRow{
		row("write", out, 64, true), row("write", in, 64, true), row("read", out, 1<<20, true), row("read", in, 1<<20, true),
		row("send", out, 64, true), row("send", in, 64, true), row("atomic", out, 8, true), row("atomic", in, 8, true),
	}
	golden.Tables(t, map[string]golden.Result{
		"connect":             &connectResult{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Rows: good, Planned: len(good)},
		"connect-interrupted": &connectResult{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Rows: good[:3], Planned: len(good), interrupted: true},
		"connect-failed":      &connectResult{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Rows: append(good[:3:3], row("read", in, 1<<20, false)), Planned: len(good)},
		"connect-at-once":     &connectResult{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Planned: len(good), interrupted: true},
		"connect-none":        &connectResult{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Planned: len(good)},
	})
}
