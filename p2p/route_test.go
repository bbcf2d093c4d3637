// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// A virtual function has a reserved bit in place of relaxed ordering: its physical function's counts.
func TestSendsOfVirtualFunction(t *testing.T) {
	const port, nic = "0000:10:01.0/0000:11:00.0/0000:12:01.0/", "0000:14:00.0"
	for name, c := range map[string]struct {
		pf, physfn string
		relaxed    bool
		fails      bool
	}{
		"the physical function has it on":    {"devctl=0x5050", "../0000:14:00.1", true, false},
		"the physical function has it off":   {"devctl=0x5040", "../0000:14:00.1", false, false},
		"the physical function is not there": {"devctl=0x5050", "../0000:14:00.7", false, true},
		"the link is noise":                  {"devctl=0x5050", "../x", false, true},
		"it is a physical function itself":   {"devctl=0x5050", "", false, false},
	} {
		tree := testenv.HGX()
		var lines []string
		for line := range strings.Lines(tree.Functions) {
			if strings.Contains(line, nic+" ") {
				lines = append(lines, strings.Replace(line, nic+" ", "0000:14:00.1 "+c.pf+" ", 1))
				lines[len(lines)-1] = strings.Replace(lines[len(lines)-1], "rdma:mlx5_0", "", 1)
				line = strings.Replace(line, nic+" ", nic+" devctl=0 ", 1)
			}
			lines = append(lines, line)
		}
		tree.Functions = strings.Join(lines, "")
		if c.physfn != "" {
			tree.Texts = maps.Clone(tree.Texts)
			if tree.Texts == nil {
				tree.Texts = map[string]string{}
			}
			tree.Texts["sys/devices/pci0000:10/"+port+nic+"/physfn"] = c.physfn
		}
		a, err := pciaddr.Parse(nic)
		if err != nil {
			t.Fatal(err)
		}
		if _, relaxed, err := p2p.Sends(machine.Open(tree.Write(t)), a); relaxed != c.relaxed || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v, want %v", name, relaxed, err, c.relaxed)
		}
	}
}
