// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// board is what the tests read of a dashboard.
type board struct {
	UID, Title string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type string }
	}
}

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

// dashboards reads all dashboards, by their files' names.
func dashboards(t *testing.T) map[string]board {
	t.Helper()
	files, err := filepath.Glob("prometheus/*.dashboard.json")
	if err != nil || len(files) < 2 {
		t.Fatalf("%q, %v", files, err)
	}
	plugins.RegisterDefaultPlugins()
	all := map[string]board{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// Grafana's own schema: a field that it does not have is an error.
		//lint:ignore SA1019 older versions of Grafana import this model only
		var d dashboard.Dashboard
		for _, err := range []error{d.UnmarshalJSONStrict(text), d.Validate()} {
			if err != nil && err.Error() != "" { // a list of no errors is not nil
				t.Errorf("%s: %v", file, err)
			}
		}
		var b board
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = b
	}
	return all
}

// variables are what a dashboard's variables may stand for when Grafana sends a query.
var variables = strings.NewReplacer("$instance", ".*", "$__rate_interval", "5m")

// Each query of the dashboards is one that Prometheus can answer, on metrics, labels and values that there are. Panels
// do not overlap.
func TestDashboards(t *testing.T) {
	there := allSamples(t)
	used := map[string]bool{}
	for file, b := range dashboards(t) {
		if b.UID == "" || b.Title == "" || len(b.Templating.List) != 2 {
			t.Errorf("%s: %q, %q, %d variables", file, b.UID, b.Title, len(b.Templating.List))
		}
		ids, cells, queries := []int{}, map[[2]int]string{}, 0
		for _, p := range b.Panels {
			if slices.Contains(ids, p.ID) || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: %+v", file, p)
			}
			ids = append(ids, p.ID)
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if other := cells[cell]; other != "" {
						t.Errorf("%s: %q covers %q", file, p.Title, other)
					}
					cells[cell] = p.Title
				}
			}
			if (len(p.Targets) == 0) != (p.Type == "row") {
				t.Errorf("%s: %q has %d queries", file, p.Title, len(p.Targets))
			}
			for _, q := range p.Targets {
				queries++
				expr, err := parse(variables.Replace(q.Expr))
				if err != nil {
					t.Errorf("%s: %q: %v", file, p.Title, err)
					continue
				}
				for _, err := range there.check(expr) {
					t.Errorf("%s: %q: %v", file, p.Title, err)
				}
				has := there.result(expr)
				for _, label := range ofTemplate.FindAllStringSubmatch(q.LegendFormat, -1) {
					if !has[label[1]] {
						t.Errorf("%s: %q: the legend has %s, and the result has not: %s", file, p.Title, label[1], q.Expr)
					}
				}
				for _, s := range there {
					if name := s.Get("__name__"); strings.Contains(q.Expr, name+"{") {
						used[name] = true
					}
				}
			}
		}
		if queries < 10 {
			t.Errorf("%s: %d queries", file, queries)
		}
	}
	// The dashboards show these.
	for _, name := range []string{"p2pcheck_status", "p2pcheck_pair_outcome", "p2pcheck_check", "p2pcheck_errors", "p2pcheck_last_look_timestamp_seconds", "gpurdma_bytes_total", "gpurdma_errors_total", "gpurdma_staged_bytes_total", "gpurdma_corrupt_blocks_total"} {
		if !used[name] {
			t.Errorf("no dashboard shows %s", name)
		}
	}
}
