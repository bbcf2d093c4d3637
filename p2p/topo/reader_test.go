// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// The tree has the functions that are no RDMA devices and that decide about pairs: the DMA
// functions of NICs, and the NICs of guests.
func TestCompanions(t *testing.T) {
	corpus := testenv.Corpus(t)
	for _, c := range []struct {
		machine string
		lines   []string
	}{
		{"case-07-gb300-data-direct", []string{
			"`- 0008:03:00.0 DMA function of mlx5_0 (mlx5_ib) 15b3:2100",
			"+- 0008:02:00.0 downstream port 15b3:197c, ACS completion redirect",
		}},
		{"case-13-vfio-host", []string{
			"`- 0000:14:00.0 NIC of a guest (vfio-pci) 15b3:1021",
			"`- 0000:12:01.0 downstream port 1000:c030, ACS request redirect, completion redirect",
		}},
	} {
		i := slices.IndexFunc(corpus, func(m testenv.CorpusMachine) bool { return m.Name == c.machine })
		if i < 0 {
			t.Fatalf("no machine %q in the corpus", c.machine)
		}
		m := machine.Open(corpus[i].Tree.Write(t))
		gpus, err1 := drivers.GPUs(m)
		nics, err2 := drivers.NICs(m)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for _, all := range []bool{true, false} {
			tree, unread := Read(m, gpus, nics, all)
			var b strings.Builder
			if err := tree.Text(&b, false); err != nil || len(unread) > 0 {
				t.Fatal(err, unread)
			}
			for _, line := range c.lines {
				if strings.Contains(b.String(), line) != all {
					t.Errorf("%s, all %v: %q in\n%s", c.machine, all, line, &b)
				}
			}
		}
	}
}
