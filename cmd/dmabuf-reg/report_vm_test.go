// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A report has every pair with a placement, and nothing that names the machine.
//
//testbed:kernel 6.12
func TestVMReport(t *testing.T) {
	testenv.VM(t)
	path := filepath.Join(t.TempDir(), "report.json")
	r := command(t, "verify", "--all-pairs", "--size", "64KiB", "--case", "whole buffer", "--report", path)
	if status := r.do(t); status != 0 {
		t.Fatalf("status %d: %s%s", status, &r.out, &r.err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct { // as its reader would take it
		Schema  string
		Machine struct{ Kernel string }
		Devices struct {
			Allocators []struct{ Available bool }
			NICs       []struct{ Name string }
		}
		Verify struct {
			Rows []struct {
				Spec, NIC string
				OK        bool
				Placement *struct{ Memory string }
			}
		}
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	ready := 0
	for _, a := range got.Devices.Allocators {
		if a.Available {
			ready++
		}
	}
	if got.Schema != reportSchema || got.Machine.Kernel == "" || ready < 2 || len(got.Verify.Rows) != ready*len(got.Devices.NICs) || len(got.Devices.NICs) == 0 {
		t.Errorf("%d rows of %d allocators and %d NICs: %s", len(got.Verify.Rows), ready, len(got.Devices.NICs), data)
	}
	for _, row := range got.Verify.Rows {
		if !row.OK || row.Placement == nil {
			t.Errorf("%s with %s: ok %v, placement %v", row.Spec, row.NIC, row.OK, row.Placement)
		}
	}
	nics, err := ibvfd.Devices("")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nics {
		names := []string{n.NodeGUID}
		for _, g := range n.Ports[0].GIDs {
			names = append(names, g.String())
		}
		for _, name := range names {
			if name == "" || strings.Contains(string(data), name) {
				t.Errorf("%s: the report has %q", n.Name, name)
			}
		}
	}
	if host, err := os.Hostname(); err != nil || strings.Contains(string(data), `"`+host+`"`) {
		t.Errorf("the report has the host's name %q (%v)", host, err)
	}
}
