// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// promtool runs Prometheus' own tool: that of GPURDMA_PROMTOOL, which `make test-promtool` sets, or of the PATH.
func promtool(t *testing.T, stdin string, args ...string) (out string, err error) {
	t.Helper()
	program := os.Getenv("GPURDMA_PROMTOOL")
	if program == "" {
		if program, err = exec.LookPath("promtool"); err != nil {
			if os.Getenv("GPURDMA_NEED_HEADERS") != "" { // of `make test`, which has fetched it
				t.Fatal(err)
			}
			t.Skipf("make test-promtool fetches Debian's: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), within(t))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// The alerts are raised when they should be, and not otherwise: p2pcheck.rules.test.yml.
func TestPromtoolRules(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "prometheus/p2pcheck.rules.yml"}, {"test", "rules", "prometheus/p2pcheck.rules.test.yml"}} {
		if out, err := promtool(t, "", args...); err != nil || !strings.Contains(out, "SUCCESS") {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
	// Each alert is raised in a test.
	rules, err1 := os.ReadFile("prometheus/p2pcheck.rules.yml")
	tests, err2 := os.ReadFile("prometheus/p2pcheck.rules.test.yml")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	n := 0
	for line := range strings.Lines(string(rules)) {
		if _, name, ok := strings.Cut(line, "- alert: "); ok {
			n++
			if !strings.Contains(string(tests), "        alertname: "+strings.TrimSpace(name)+"\n        exp_alerts:\n") {
				t.Errorf("no test raises %s", name)
			}
		}
	}
	if n == 0 {
		t.Error("no alerts")
	}
}

// promtool finds nothing in the metrics of any machine.
func TestPromtoolMetrics(t *testing.T) {
	for machine, text := range expositions(t) {
		if out, err := promtool(t, text, "check", "metrics"); err != nil || out != "" {
			t.Errorf("%s: %v\n%s", machine, err, out)
		}
	}
	if out, err := promtool(t, "# TYPE p2pcheckErrors gauge\np2pcheckErrors 1\n", "check", "metrics"); err == nil {
		t.Errorf("promtool finds nothing in bad metrics: %s", out)
	}
}

// hours is when the queries are asked; the series have a value each five minutes until then.
const hours, steps = 48, 48 * 12

// inputs are series for promtool: those of the samples, and some that changed an hour and two hours ago.
func inputs(all samples) (list []map[string]string) {
	add := func(series, values string) {
		list = append(list, map[string]string{"series": series, "values": values})
	}
	seen := map[string]bool{}
	for _, l := range all {
		name := l.Get(model.MetricNameLabel)
		values := fmt.Sprintf("1x%d", steps)
		if strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_count") || strings.HasSuffix(name, "_sum") {
			values = fmt.Sprintf("0+10x%d", steps)
		}
		var b strings.Builder
		l.Range(func(x labels.Label) {
			if x.Name != model.MetricNameLabel {
				fmt.Fprintf(&b, ",%s=%q", x.Name, x.Value)
			}
		})
		series := name + "{" + strings.TrimPrefix(b.String(), ",") + "}"
		if !seen[series] {
			seen[series] = true
			add(series, values)
		}
	}
	before, after := steps-12, 12
	add(`p2pcheck_status{instance="turned"}`, fmt.Sprintf("0x%d 1x%d", before, after))
	add(`p2pcheck_pair_outcome{instance="turned",gpu="g",nic="n",outcome="direct"}`, fmt.Sprintf("1x%d stale", before))
	add(`p2pcheck_pair_outcome{instance="turned",gpu="g",nic="n",outcome="lost"}`, fmt.Sprintf("_x%d 1x%d", before, after))
	add(`p2pcheck_check{instance="turned",id="NET-MTU",result="fail"}`, fmt.Sprintf("_x%d 1x%d", before, after))
	add(`p2pcheck_status{instance="gone"}`, fmt.Sprintf("0x%d stale", steps-24))
	return list
}

// Prometheus answers each query of the dashboards with something, on series of which some have changed.
func TestPromtoolDashboards(t *testing.T) {
	type expected struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
	type query struct {
		Expr string     `json:"expr"`
		At   string     `json:"eval_time"`
		Want []expected `json:"exp_samples"`
	}
	var queries []query
	for _, b := range dashboards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				queries = append(queries, query{"(count(" + variables.Replace(q.Expr) + ") > bool 0) or vector(0)", fmt.Sprint(hours, "h"), []expected{{"{}", 1}}})
			}
		}
	}
	ask := func(queries []query) (string, error) {
		text, err := json.Marshal(map[string]any{"evaluation_interval": "5m", "tests": []any{map[string]any{"interval": "5m", "input_series": inputs(allSamples(t)), "promql_expr_test": queries}}})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "queries.yml") // JSON is YAML
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return promtool(t, "", "test", "rules", file)
	}
	if len(queries) < 20 {
		t.Fatalf("%d queries", len(queries))
	}
	if out, err := ask(queries); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := ask([]query{{"(count(p2pcheck_nothing) > bool 0) or vector(0)", "48h", []expected{{"{}", 1}}}}); err == nil {
		t.Errorf("a query without a result passes: %s", out)
	}
}
