// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Both sides print where their bytes are. Without tracing they call memory direct that has
// moved to system memory.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMConnectTraced(t *testing.T) {
	for _, c := range []struct {
		personality string
		moves       bool // into system memory, by its driver
	}{{"amdgpu", !testenv.AtLeast(t, "7.0")}, {"i915", true}} {
		t.Run(c.personality, func(t *testing.T) {
			gpu := testenv.SoftGPUs(t, "personality="+c.personality)[0]
			testenv.SetImporter(t, "rxe0", "pinned")
			path, memory, why := "direct", "peer-to-peer", "; peer-to-peer: "+gpu.PCI+" BAR 2 "
			if c.moves {
				path, memory, why = "moved", "system memory", ", but its bytes are not in the GPU's memory: system memory"
			}
			s := serving(t, "--gpu", "drm:"+gpu.PCI, "--trace")
			local := s.doc.Result.Local
			if local.Path != path || !strings.Contains(local.Why, why) || local.Placement == nil || local.Placement.Memory != memory {
				t.Errorf("serve: %+v, %+v", local, local.Placement)
			}
			d := connected(t, s, "--gpu", "drm:"+gpu.PCI, "--ops", "write,read", "--sizes", "4KiB")
			if d.Remote.Path != local.Path || d.Remote.Why != local.Why {
				t.Errorf("connect says of serve: %+v", d.Remote)
			}
			if d.Local.Path != "direct" || d.Local.Placement != nil || !strings.Contains(d.Local.Why, "is not known (--trace shows it)") {
				t.Errorf("connect, which nobody watched: %+v", d.Local)
			}
			// bench calls what it measures by the same name.
			r := command(t, "bench", s.doc.Result.Listen, "--json", "--nic", "rxe0", "--gpu", "drm:"+gpu.PCI, "--size", "256KiB", "--trace",
				"--ops", "write", "--sizes", "4096", "--rounds", "1", "--kinds", "direct,host", "--timeout", stepLimit)
			if status := r.do(t); status != cli.ExitOK {
				t.Fatalf("bench: status %d: %s%s", status, &r.out, &r.err)
			}
			b := parse[struct {
				Local  localDoc
				Points []struct{ Kind string }
			}](t, r.out.Bytes()).Result
			if len(b.Points) != 2 || b.Points[0].Kind != path || b.Points[1].Kind != "host" || b.Local.Path != path {
				t.Errorf("bench: %+v", b)
			}
			// Memory of the system is where it was asked for.
			d = connected(t, s, "--gpu", "drm:"+gpu.PCI+"/system", "--ops", "write", "--sizes", "64", "--trace")
			if d.Local.Path != "direct" || d.Local.Placement == nil || d.Local.Placement.Memory != "system memory" || strings.Contains(d.Local.Why, "not in the GPU's memory") {
				t.Errorf("connect from system memory: %+v", d.Local)
			}
			// Nor is there anything to watch.
			if d = connected(t, s, "--gpu", "host", "--ops", "write", "--sizes", "64", "--trace"); d.Local.Path != "host" || d.Local.Placement != nil {
				t.Errorf("connect from host memory: %+v", d.Local)
			}
			s.ends(t)
		})
	}
	if testenv.AtLeast(t, "7.0") {
		return // this root complex is trusted there: nothing refuses
	}
	// Which function refused is said where that is an error and where host memory
	// stands in.
	t.Run("refused", func(t *testing.T) {
		gpu := testenv.SoftGPUs(t, "personality=xe")[0]
		testenv.SetImporter(t, "rxe0", "pinned")
		s := serving(t, "--gpu", "host")
		r := connecting(t, s, "--gpu", "drm:"+gpu.PCI+"/vram-only", "--policy", "direct", "--trace")
		if status := r.do(t); status != cli.ExitFailed {
			t.Fatalf("status %d: %s%s", status, &r.out, &r.err)
		}
		e := parse[connectDoc](t, r.out.Bytes()).Errors
		if len(e) != 1 || e[0].Stage == nil || e[0].Stage.Earliest != "attach" || e[0].Stage.Latest != "attach" {
			t.Errorf("%+v", e)
		}
		d := connected(t, s, "--gpu", "drm:"+gpu.PCI+"/vram-only", "--ops", "write", "--sizes", "64", "--trace").Local
		if d.Path != "staged" || d.Placement != nil || d.Failure == nil || d.Failure.Stage != "attach" || !strings.Contains(d.Why, "at attach") {
			t.Errorf("%+v, %+v", d, d.Failure)
		}
		s.ends(t)
	})
}
