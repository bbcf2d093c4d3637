// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The texts for machines of known shapes. A person has read each text.
func TestMachines(t *testing.T) {
	for name, status := range map[string]int{
		"hgx":          cli.ExitOK,
		"wrong-socket": cli.ExitOK,
		"grace":        cli.ExitOK,
		"mi300":        cli.ExitOK,
		"xe":           cli.ExitFailed,
		"flat-vm":      cli.ExitUnavailable,
	} {
		t.Run(name, func(t *testing.T) {
			tree := testenv.Machines[name]()
			r := run(tree, t, "--root", "ROOT")
			if r.status != status || r.err != "" {
				t.Errorf("status %d, want %d: %s", r.status, status, r.err)
			}
			topo := run(tree, t, "topo", "--root", "ROOT")
			golden(t, "machine-"+name+".txt", r.out+"\n"+topo.out)
		})
	}
}

// A node without a GPU is not a bad node: its status is unknown.
func TestWorker(t *testing.T) {
	root := testenv.Worker("vendor=0x8086 device=0x100e driver:e1000e").Write(t)
	if r := command("--root", root); r.status != cli.ExitUnavailable || strings.Contains(r.out, "FAIL") || strings.Contains(r.out, "modprobe") {
		t.Errorf("%+v", r)
	}
	if r := command("--root", root, "--format", "nagios"); r.status != 3 || !strings.HasPrefix(r.out, "P2PCHECK UNKNOWN - no pair to check") {
		t.Errorf("%+v", r)
	}
	if r := command("--root", root, "--format", "npd"); r.status != 2 {
		t.Errorf("%+v", r)
	}
}
