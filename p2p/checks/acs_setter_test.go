// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/check"
)

// A finding does not name the firmware as the cause of bits that the kernel's command line sets.
func TestWhoSetACS(t *testing.T) {
	const firmware, config, since = "from the firmware or set since", "as pci=config_acs= on the kernel's command line sets it", "opens this port"
	const kernel, may = "as the kernel sets it", "whether that names this port is not known"
	for _, c := range []struct {
		line, port string
		iommu      bool
		words      string
	}{
		{"quiet", "0000:12:00.0", false, firmware},
		{"pci=config_acs=xx111x1@0000:12:00.0", "0000:12:00.0", false, config},
		{"pci=noats,config_acs=1@0000:20:00.0;11101@12:00.0", "0000:12:00.0", false, config},
		{"pci=config_acs=11101@0000:12:00.0", "0000:12:01.0", false, firmware},
		{"pci=config_acs=xx0xx@0000:12:00.0", "0000:12:00.0", false, firmware},      // it leaves on what was on
		{"pci=config_acs=x@12:00.0;11101@12:00.0", "0000:12:00.0", false, firmware}, // the first entry counts
		{"pci=config_acs=11101", "0000:12:00.0", false, firmware},                   // of no port
		{"pci=config_acs=11101@pci:1000:c030", "0000:12:00.0", false, config},
		{"pci=config_acs=11101@pci:0:C030", "0000:12:00.0", false, config}, // 0 is any
		{"pci=config_acs=11101@pci:8086:c030", "0000:12:00.0", false, firmware},
		{"pci=config_acs=11101@pci:1000:c030:1000:1", "0000:12:00.0", false, may}, // IDs of the board
		{"pci=config_acs=11101@pci:8086:c030:1000:1", "0000:12:00.0", false, firmware},
		{"pci=config_acs=11101@pci:1000", "0000:12:00.0", false, may},
		{"pci=config_acs=11101@10:01.0/00.0/00.0", "0000:12:00.0", false, config}, // a path
		{"pci=config_acs=11101@11:00.0/00.0", "0000:12:00.0", false, config},
		{"pci=config_acs=11101@10:01.0/00.0/00.0", "0000:12:01.0", false, firmware},
		{"pci=config_acs=11101@10:01.0/00.0", "0000:12:00.0", false, firmware},
		{"pci=config_acs=11101@10:02.0/00.0/00.0", "0000:12:00.0", false, firmware},
		{"pci=config_acs=11101@09:00.0/01.0/00.0/00.0", "0000:12:00.0", false, firmware},
		{"pci=config_acs=11101@10:01.0/0.0/0.0", "0000:12:00.0", false, may},
		{"pci=config_acs=11101@odd", "0000:12:00.0", false, may},
		{"pci=disable_acs_redir=10:01.0/00.0/00.0", "0000:12:00.0", false, since},
		{"pci=disable_acs_redir=pci:1000:c030", "0000:12:00.0", false, since},
		{"pci=config_acs=xxxxx@pci:1000:c030", "0000:12:00.0", false, firmware}, // and sets nothing
		{"pci=disable_acs_redir=12:00.0", "0000:12:00.0", false, since},         // or it would not redirect
		{"pci=disable_acs_redir=12:00.0", "0000:12:01.0", false, firmware},      // another port
		{"pci=disable_acs_redir=12:00.0,config_acs=11101@12:00.0", "0000:12:00.0", false, config},
		{"pci=config_acs=11101@12:00.0", "0000:12:00.0", true, config},
		{"pci=config_acs=11101@pci:1000", "0000:12:00.0", true, kernel},
	} {
		edits := []edit{swap("acs=0x00", "acs=0x1d"), put("proc/cmdline", c.line)}
		if !c.iommu {
			edits = append(edits, swap("group=", "none="))
		}
		said := ""
		for _, f := range checked(t, testenv.Machines["small-mi300"](), check.Live{}, "ISO-ACS-SOURCE", edits...) {
			for _, port := range f.Scope {
				if port == c.port && f.Result == warn {
					said = f.Read
				}
			}
		}
		if !strings.Contains(said, c.words) {
			t.Errorf("%s, %s: %q, want %q", c.line, c.port, said, c.words)
		}
	}
}
