// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
)

// A parameter that makes the IOMMU translate has no effect where the IOMMU is off.
func TestTranslateRemedy(t *testing.T) {
	none, pt := swap("group=", "none="), " off the kernel's command line"
	line := func(words string) edit { return put("proc/cmdline", words) }
	for name, c := range map[string]struct {
		edits                  []edit
		change, command, costs string
		not                    string
	}{
		"passed through":     {[]edit{line("quiet")}, "let the IOMMU translate", "iommu.passthrough=0", "iommu=pt", "off"},
		"by parameter":       {[]edit{line("iommu=pt amd_iommu=on")}, "take iommu=pt" + pt, "iommu.passthrough=0", "iommu=pt", "amd_iommu"},
		"by the other":       {[]edit{line("iommu.passthrough=1")}, "take iommu.passthrough=1" + pt, "iommu.passthrough=0", "iommu=pt", "firmware (AMD"},
		"AMD":                {[]edit{none, line("quiet")}, "in the firmware (AMD-Vi)", "", "ISO-IOMMU-MODE", "iommu=pt"},
		"AMD, turned off":    {[]edit{none, line("amd_iommu=off iommu=pt")}, "take amd_iommu=off and iommu=pt" + pt, "", "ISO-IOMMU-MODE", "intel"},
		"Intel":              {[]edit{none, cpu(machinetest.Xeon), line("quiet")}, "in the firmware (VT-d) and by the kernel's parameter", "intel_iommu=on", "ISO-IOMMU-MODE", "AMD"},
		"Intel, passed":      {[]edit{none, cpu(machinetest.Xeon), line("iommu=pt")}, "take iommu=pt" + pt, "intel_iommu=on", "ISO-IOMMU-MODE", "AMD"},
		"Intel, firmware":    {[]edit{none, cpu(machinetest.Xeon), line("intel_iommu=on,sm_on")}, "in the firmware (VT-d)", "", "ISO-IOMMU-MODE", "parameter"},
		"Intel, turned off":  {[]edit{none, cpu(machinetest.Xeon), line("intel_iommu=off")}, "take intel_iommu=off" + pt, "intel_iommu=on", "ISO-IOMMU-MODE", "AMD"},
		"another":            {[]edit{none, cpu(machinetest.Grace), line("quiet")}, "in the firmware", "", "ISO-IOMMU-MODE", "("},
		"a processor unread": {[]edit{none, cpu("-"), line("quiet")}, "in the firmware", "", "ISO-IOMMU-MODE", "("},
	} {
		found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "P2P-DMAMASK", append(c.edits, swap("dma_mask_bits=64", "dma_mask_bits=44"))...)
		if worst(found) != fail {
			t.Errorf("%s: %v", name, said(found))
			continue
		}
		r := found[0].Remedy
		if !strings.Contains(r.Change, c.change) || strings.Contains(r.Change, c.not) || r.Command != c.command || !strings.Contains(r.Weakens, c.costs) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
