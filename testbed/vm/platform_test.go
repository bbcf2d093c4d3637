// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/testbed/arch"
)

// Each architecture that there is has its console, and only the kernel's report that is
// the firmware's fault is allowed.
func TestPlatforms(t *testing.T) {
	for _, name := range arch.Flavours() {
		a, err := arch.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		p := platforms[a.Name]
		if p.console == "" || !slices.Contains(p.cmdline(), "console="+p.console) || !slices.Contains(p.cmdline(), "oops=panic") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	for report, want := range map[string]bool{
		"WARNING: mm/vmalloc.c:104 at vmap_range_noflush+0x518/0x7f0, CPU#0: swapper/0/1":    true,
		"WARNING: mm/vmalloc.c:104 at vmap_range_noflush+0x518/0x7f0, CPU#0: insmod/812":     false, // after the boot
		"WARNING: mm/vmalloc.c:3407 at remap_vm_area_pages+0x18/0x7f0, CPU#0: swapper/0/1":   false,
		"BUG: sleeping function called from invalid context at mm/vmalloc.c:104 swapper/0/1": false,
	} {
		if got := splitWindow.MatchString(report); got != want {
			t.Errorf("%q: allowed %v", report, got)
		}
	}
}
