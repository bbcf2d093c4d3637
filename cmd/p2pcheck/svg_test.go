// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The drawing is well-formed, and has each function and each pair.
func TestSVG(t *testing.T) {
	machines := maps.Clone(testenv.Machines)
	machines["storage"] = storage
	for name, machine := range machines {
		tree := machine()
		r := run(tree, t, "topo", "--svg", "--root", "ROOT")
		if r.status != cli.ExitOK || r.err != "" {
			t.Errorf("%s: %+v", name, r)
		}
		boxes := 0
		d := xml.NewDecoder(strings.NewReader(r.out))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
				boxes++
			}
		}
		text := run(tree, t, "topo", "--root", "ROOT").out
		want := 1 + strings.Count(text, " root port") + strings.Count(text, " upstream port") + strings.Count(text, " downstream port") +
			strings.Count(text, " GPU ") + strings.Count(text, " NVMe ") + strings.Count(text, " PF ") + strings.Count(text, " NIC mlx") + strings.Count(text, " NIC bnxt") + strings.Count(text, "  mlx5_") + strings.Count(text, "  bnxt_re")
		if boxes != want {
			t.Errorf("%s: %d boxes, want %d", name, boxes, want)
		}
	}
	// Red are the switch's link, which is too slow for the pairs, and what redirects:
	// two root ports and three of the switch.
	if r := run(storage(), t, "topo", "--svg", "--root", "ROOT"); strings.Count(r.out, `fill="none" stroke="#c0392b"`) != 1 || strings.Count(r.out, `rx="3" fill="#eeeeee" stroke="#c0392b"`) != 5 || !strings.Contains(r.out, ">red: ") {
		t.Error(r.out)
	}
	if r := run(testenv.HGX(), t, "topo", "--svg", "--root", "ROOT"); strings.Contains(r.out, "#c0392b") || strings.Contains(r.out, ">red: ") {
		t.Error(r.out)
	}
	// Pairs that do not count have no verdict.
	if r := run(testenv.HGX(), t, "topo", "--svg", "--root", "ROOT"); strings.Contains(r.out, "STAGED") || strings.Count(r.out, ">-</text>") != 8 {
		t.Error(r.out)
	}
	odd := machineTree(strings.ReplaceAll(server, "rdma:mlx5_0", "rdma:<&>"), "0x1d")
	if r := run(odd, t, "topo", "--svg", "--root", "ROOT"); !strings.Contains(r.out, "&lt;&amp;&gt;") || strings.Contains(r.out, "<&>") {
		t.Errorf("%+v", r)
	}
	if r := run(testenv.Tree{Files: map[string]string{"sys/kernel/x": ""}}, t, "topo", "--svg", "--root", "ROOT"); r.status != cli.ExitUnavailable || xml.Unmarshal([]byte(r.out), new(struct{})) != nil {
		t.Errorf("%+v", r)
	}
}
