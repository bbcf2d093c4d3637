// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// bar-search finds what the NIC wrote in the GPU's BAR where the kernel lets
// the NIC reach it, and nowhere where the driver has fallen back to system
// memory; --trace says the same, and verify does not hide it.
//
//testbed:machine fabric
//testbed:kernel 7.2
func TestVMLocate(t *testing.T) {
	t.Run("refused", refusedAtAttach) // with a software GPU of its own
	locateTable(t)
}

// Where the kernel is built without PCI_P2PDMA, it is nowhere.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 6.12
func TestVMLocateWithoutP2PDMA(t *testing.T) {
	t.Run("refused", refusedAtAttach) // with a software GPU of its own
	locateTable(t)
}

// xe does not let a NIC attach to a buffer that may be in VRAM only, if the NIC cannot reach
// it. The trace of that attach gives the cause, which the errno alone leaves open.
func refusedAtAttach(t *testing.T) {
	gpu := testenv.SoftGPUs(t, "personality=xe")[0]
	testenv.SetImporter(t, "rxe1", "pinned")
	r := command(t, "register", "--gpu", "drm:"+gpu.PCI+"/vram-only", "--nic", "rxe1", "--trace", "--json")
	if status := r.do(t); status != cli.ExitFailed {
		t.Fatalf("status %d: %s%s", status, &r.out, &r.err)
	}
	d := parse[struct{}](t, r.out.Bytes())
	if len(d.Errors) != 1 || d.Errors[0].Stage == nil {
		t.Fatalf("%+v", d.Errors)
	}
	e := d.Errors[0]
	if e.Stage.Earliest != "attach" || e.Stage.Latest != "attach" || !strings.Contains(e.Detail, "refused") || !strings.Contains(e.Detail, "exporter softgpu") || !strings.Contains(e.Detail, "importer 0000:") || e.Remedy == "" || strings.Contains(e.Remedy, "access flags") {
		t.Errorf("%+v, stage %+v", e, e.Stage)
	}
	// verify says so of the case that failed, too.
	r = command(t, "verify", "--gpu", "drm:"+gpu.PCI+"/vram-only", "--nic", "rxe1", "--size", "64KiB", "--trace", "--json")
	if status := r.do(t); status != cli.ExitFailed {
		t.Fatalf("verify: status %d: %s%s", status, &r.out, &r.err)
	}
	rows := parse[struct {
		Rows []struct {
			Report struct {
				Cases []struct {
					OK, Skipped bool
					NotRun      bool `json:"not_run"`
					Detail      string
				}
			}
		}
	}](t, r.out.Bytes()).Result.Rows
	if len(rows) != 1 || len(rows[0].Report.Cases) == 0 {
		t.Fatalf("verify: %s", &r.out)
	}
	failed := 0
	for _, c := range rows[0].Report.Cases {
		if c.OK || c.Skipped || c.NotRun {
			continue
		}
		failed++
		if !strings.Contains(c.Detail, "at attach") || strings.Contains(c.Detail, "between") {
			t.Errorf("verify says of a case: %s", c.Detail)
		}
	}
	if failed == 0 {
		t.Errorf("no case failed: %s", &r.out)
	}
	if testenv.AtLeast(t, "7.0") && (!strings.Contains(e.Detail, "cannot reach "+gpu.PCI) || !strings.Contains(e.Remedy, "switch")) {
		t.Errorf("%+v", e)
	}
}

func locateTable(t *testing.T) {
	gpu := testenv.SoftGPUs(t, "personality=amdgpu")[0]
	peers := testenv.AtLeast(t, "7.0")
	for _, c := range []struct {
		spec, nic string
		inVRAM    bool
	}{
		{"", "rxe0", peers}, // below the same switch
		{"", "rxe1", false}, // through a root complex that is on no list
		{"/system", "rxe0", false},
	} {
		t.Run(fmt.Sprintf("gpu0%s,%s", c.spec, c.nic), func(t *testing.T) {
			testenv.SetImporter(t, c.nic, "pinned")
			r := command(t, "verify", "--gpu", "drm:"+gpu.PCI+c.spec, "--nic", c.nic, "--size", "256KiB",
				"--trace", "--locate", "bar-search", "--json")
			if status := r.do(t); status != 0 {
				t.Fatalf("status %d: %s%s", status, &r.out, &r.err)
			}
			d := parse[struct {
				Rows []struct {
					Staged  string
					Located *struct {
						Found bool
						Says  string
					}
					Placement *struct{ Memory string }
				}
			}](t, r.out.Bytes())
			if len(d.Result.Rows) != 1 {
				t.Fatalf("%d rows: %s", len(d.Result.Rows), &r.out)
			}
			row := d.Result.Rows[0]
			if row.Located == nil || row.Placement == nil {
				t.Fatalf("nobody looked: %s", &r.out)
			}
			want, memory := "found nowhere in ", "system memory"
			if c.inVRAM {
				want, memory = "found in BAR 2 of "+gpu.PCI+" at 0x", "peer-to-peer"
			}
			if row.Located.Found != c.inVRAM || !strings.HasPrefix(row.Located.Says, want) {
				t.Errorf("bar-search: %v, %q; want %v, %q", row.Located.Found, row.Located.Says, c.inVRAM, want)
			}
			if row.Placement.Memory != memory {
				t.Errorf("the tracer says %q, want %q", row.Placement.Memory, memory)
			}
			if staged := c.spec == "" && !c.inVRAM; (row.Staged != "") != staged {
				t.Errorf("staged: %q, want said: %v", row.Staged, staged)
			}
		})
	}

	t.Run("without the tracer", func(t *testing.T) {
		for spec, want := range map[string]string{
			"drm:" + gpu.PCI: "NOT IN THE GPU'S MEMORY: drm:" + gpu.PCI + " with rxe0",
			"udmabuf":        "not looked for with --locate: no memory that was tried is on a PCI device",
		} {
			if spec == "udmabuf" && testenv.Node("/dev/udmabuf")() != nil {
				continue
			}
			r := command(t, "verify", "--gpu", spec, "--nic", "rxe0", "--size", "64KiB", "--locate", "false", "--wide")
			if status := r.do(t); status != 0 || !strings.Contains(r.out.String(), want) {
				t.Errorf("%s: status %d, want %q: %s%s", spec, status, want, &r.out, &r.err)
			}
		}
	})

	t.Run("register says why", func(t *testing.T) {
		r := command(t, "register", "--trace", "--gpu", "drm:"+gpu.PCI, "--nic", "rxe-soft", "--size", "64KiB", "--wide")
		if status := r.do(t); status != 0 {
			t.Fatalf("status %d: %s%s", status, &r.out, &r.err)
		}
		wants := []string{"NOT IN THE GPU'S MEMORY: allocated in VRAM, and registered: the bytes are in system memory"}
		if testenv.AtLeast(t, "7.2") { // without PCI_P2PDMA the exporter does not ask for the distance
			wants = append(wants, "cannot reach "+gpu.PCI+": distance -1, the importer hangs on no PCI bus")
		}
		for _, want := range wants {
			if !strings.Contains(r.out.String(), want) {
				t.Errorf("not said: %q:\n%s", want, &r.out)
			}
		}
	})

	t.Run("a program that fails", func(t *testing.T) {
		script := filepath.Join(t.TempDir(), "broken")
		if err := os.WriteFile(script, []byte("#!/bin/sh\necho no such BAR >&2\nexit 3\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, program := range []string{script, "/nonexistent"} {
			r := command(t, "verify", "--gpu", "drm:"+gpu.PCI, "--nic", "rxe0", "--size", "64KiB", "--locate", program)
			if status := r.do(t); status == 0 || !strings.Contains(r.err.String()+r.out.String(), program) {
				t.Errorf("%s: status %d: %s%s", program, status, &r.out, &r.err)
			}
		}
	})
}
