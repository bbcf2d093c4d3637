// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
)

// A BAR beside memory of unknown size never passes. It decides nothing where there is no file and no
// library to ask, unless the GPU offers a larger BAR.
func TestBARBesideUnknownMemory(t *testing.T) {
	none := memory(0, fmt.Errorf("%w: no libnvidia-ml.so.1", check.ErrNotAsked))
	more := put(amdGPU+"/resource0_resize", "0000000000040000")
	for name, c := range map[string]struct {
		on    string
		live  check.Live
		edits []edit
		hides bool
	}{
		"copy":                {"small-hgx", check.Live{}, nil, false},
		"no library":          {"small-hgx", none, nil, false},
		"size is fixed":       {"small-hgx", check.Live{}, []edit{drop(amdGPU + "/resource0_resize")}, false},
		"offers more":         {"small-hgx", none, []edit{more}, true},
		"library fails":       {"small-hgx", memory(0, fmt.Errorf("broken")), nil, true},
		"GPU is not listed":   {"small-hgx", memory(0, nil), nil, true},
		"no file of Intel's":  {"xe", check.Live{}, nil, false},
		"AMD's file is there": {"small-mi300", check.Live{}, []edit{put(amdGPU+"/mem_info_vram_total", "?")}, true},
	} {
		found := checked(t, testenv.Machines[c.on](), c.live, "PCIE-BAR-SIZE", c.edits...)
		hides := false
		for _, f := range found {
			hides = hides || f.Hides()
		}
		if worst(found) != p2p.ResultUnknown || hides != c.hides {
			t.Errorf("%s: %v", name, said(found))
		}
	}
}
