// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/placement"
)

// Only bytes that are proven to be in the GPU that they were allocated on pass --require-direct.
func TestRequireDirect(t *testing.T) {
	const gpu = "0000:03:00.0"
	in := func(memory placement.Memory, route placement.Route, places ...placement.Place) *placement.Placement {
		return &placement.Placement{Memory: memory, Route: route, Places: places}
	}
	bar := placement.Place{Kind: placement.KindBAR, Device: gpu}
	for name, c := range map[string]struct {
		row  Row
		want string // "" if it passes
	}{
		"in the GPU":          {Row{Placement: in(placement.PeerToPeer, placement.BelowSwitch, bar)}, ""},
		"in system memory":    {Row{Placement: in(placement.SystemMemory, placement.RouteUnknown)}, "not in the GPU's memory: "},
		"way unknown":         {Row{Placement: in(placement.PeerToPeer, placement.RouteUnknown, bar)}, "it is not known"},
		"in another device":   {Row{Placement: in(placement.PeerToPeer, placement.BelowSwitch, placement.Place{Kind: placement.KindBAR, Device: "0000:05:00.0"})}, "it is not known"},
		"unknown":             {Row{Placement: in(placement.Unknown, placement.RouteUnknown)}, "it is not known"},
		"not traced":          {Row{}, "it is not known"},
		"found nowhere":       {Row{Placement: in(placement.PeerToPeer, placement.BelowSwitch, bar), Located: &located{}}, "--locate's program says"},
		"located, not traced": {Row{Located: &located{Found: true}}, "it is not known"},
	} {
		c.row.Staged = c.row.staged()
		err := c.row.direct(gpu)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A row that --require-direct fails keeps the line that says where its bytes are.
func TestRequireDirectSays(t *testing.T) {
	row := Row{Spec: "drm:renderD128", NIC: "mlx5_0", Report: &canary.Report{OK: true}, Placement: &placement.Placement{Memory: placement.SystemMemory}}
	row.Staged = row.staged()
	var text strings.Builder
	if err := (&Result{RequireDirect: true, Rows: []Row{row}}).Text(&text); err != nil || !strings.Contains(text.String(), "NOT IN THE GPU'S MEMORY") || !strings.Contains(text.String(), "FAIL: 0 of 1 passed") {
		t.Errorf("%v\n%s", err, &text)
	}
}
