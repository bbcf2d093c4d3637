// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/metrics"
)

// samples are the metrics of some scrapes, each of another target.
type samples []labels.Labels

// scraped adds a scrape.
func (s *samples) scraped(families map[string]*dto.MetricFamily, instance string) {
	for name, f := range families {
		names := []string{name}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = []string{name + "_bucket", name + "_sum", name + "_count"}
		}
		for _, m := range f.GetMetric() {
			for _, name := range names {
				b := labels.NewScratchBuilder(8)
				b.Add(model.MetricNameLabel, name)
				b.Add("instance", instance)
				b.Add("job", "test")
				for _, l := range m.GetLabel() {
					b.Add(l.GetName(), l.GetValue())
				}
				if strings.HasSuffix(name, "_bucket") {
					b.Add("le", "+Inf")
				}
				b.Sort()
				*s = append(*s, b.Labels())
			}
		}
	}
}

// expositions are what p2pcheck writes for a machine of each outcome, one on which checks fail, and none.
func expositions(t *testing.T) map[string]string {
	t.Helper()
	if written != nil {
		return written
	}
	roots := machinesByOutcome(t)
	roots["bad"], roots["none"] = bad(t), t.TempDir()+"/none"
	texts := map[string]string{}
	for name, root := range roots {
		out, err := p2pcheck(t, "--root", root, "--format", "prometheus").Output() // the status is that of the machine
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		texts[name] = string(out)
	}
	written = texts
	return texts
}

// written is what expositions returns, once for all tests.
var written map[string]string

// allSamples are those of p2pcheck on many machines, and of two Fabrics that have written to each other.
func allSamples(t *testing.T) (all samples) {
	t.Helper()
	for instance, text := range expositions(t) {
		p := expfmt.NewTextParser(model.LegacyValidation)
		families, err := p.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		all.scraped(families, instance)
	}
	families := map[string]*dto.MetricFamily{}
	for _, f := range fabrics(t) {
		families[f.GetName()] = f
	}
	all.scraped(families, "fabric")
	return all
}

// fabrics returns the metrics of package metrics.
func fabrics(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	net := fabrictest.NewNetwork(fabrictest.Options{})
	a, err1 := net.Open("mlx5_0")
	b, err2 := net.Open("mlx5_0")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = a.Close(), b.Close() }()
	ln, err := b.Listen("127.0.0.1:1", gpurdma.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Dial(t.Context(), "127.0.0.1:1", gpurdma.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ln.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Send(t.Context(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.NewCollector(a))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// check reports what an expression asks for and no scrape has: a metric, a label, or labels of such values.
func (s samples) check(expr parser.Expr) (errs []error) {
	names := map[string]bool{} // of labels
	for _, l := range s {
		l.Range(func(x labels.Label) { names[x.Name] = true })
	}
	named := func(list []string) {
		for _, name := range list {
			if !names[name] {
				errs = append(errs, fmt.Errorf("%s: no metric has a label %s", expr, name))
			}
		}
	}
	selectors := 0
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			selectors++
			if !slices.ContainsFunc(s, func(l labels.Labels) bool { return selects(n, l) }) {
				errs = append(errs, fmt.Errorf("no metric is %s", n))
			}
		case *parser.AggregateExpr:
			named(n.Grouping)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				named(n.VectorMatching.MatchingLabels)
				named(n.VectorMatching.Include)
			}
		}
		return nil
	})
	if selectors == 0 {
		errs = append(errs, fmt.Errorf("%s is on no metric", expr))
	}
	return errs
}

// selects says whether a selector matches a series, which must have all labels that the selector names.
func selects(n *parser.VectorSelector, l labels.Labels) bool {
	for _, m := range n.LabelMatchers {
		if !l.Has(m.Name) || !m.Matches(l.Get(m.Name)) {
			return false
		}
	}
	return true
}

// ofTemplate are the labels that a text of an alert ({{ $labels.x }}) or a legend ({{x}}) names.
var ofTemplate = regexp.MustCompile(`\{\{ *(?:\$labels\.)?(\w+) *\}\}`)

// result are the labels that an expression's result can have.
func (s samples) result(expr parser.Expr) (names map[string]bool) {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return s.result(e.Expr)
	case *parser.AggregateExpr:
		if e.Op == parser.TOPK || e.Op == parser.BOTTOMK {
			return s.result(e.Expr)
		}
		names = map[string]bool{}
		for _, name := range e.Grouping {
			names[name] = true
		}
		return names
	case *parser.BinaryExpr:
		if names = s.result(e.LHS); len(names) > 0 {
			return names
		}
		return s.result(e.RHS)
	case *parser.Call:
		for _, arg := range e.Args {
			if names = s.result(arg); len(names) > 0 {
				return names
			}
		}
	case *parser.MatrixSelector:
		return s.result(e.VectorSelector)
	case *parser.StepInvariantExpr:
		return s.result(e.Expr)
	case *parser.VectorSelector:
		names = map[string]bool{}
		for _, l := range s {
			if selects(e, l) {
				l.Range(func(x labels.Label) { names[x.Name] = true })
			}
		}
	}
	return names
}

// The checks of this file find what they are for.
func TestSamples(t *testing.T) {
	var s samples
	s.scraped(map[string]*dto.MetricFamily{"m": {Metric: []*dto.Metric{{Label: []*dto.LabelPair{{Name: new("a"), Value: new("x")}}}}}}, "i")
	for text, wrong := range map[string]bool{
		`m`: false, `m{a="x"}`: false, `m{a=~"x|y"}`: false, `sum by (a) (m)`: false, `m and on (a) m`: false, `rate(m{a="x"}[5m])`: false,
		`n`: true, `m{a="y"}`: true, `m{b=""}`: true, `sum by (b) (m)`: true, `m and on (b) m`: true, `1`: true, `m / on (a) group_left (b) m`: true,
	} {
		expr, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if errs := s.check(expr); (len(errs) > 0) != wrong {
			t.Errorf("%s: %v", text, errs)
		}
	}
	if expr, err := parse(`sum by (a) (m) > 0`); err != nil || !s.result(expr)["a"] || s.result(expr)["instance"] {
		t.Errorf("%v %v", expr, err)
	}
}

var promql = parser.NewParser(parser.Options{})

func parse(text string) (parser.Expr, error) { return promql.ParseExpr(text) }

// within bounds what a program may take.
func within(t *testing.T) time.Duration { return testenv.Limit(2 * time.Minute) }
