// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/looktest"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/topo"
)

// looked is a machine of testenv.
func looked(t *testing.T, name string) (result.Run, topo.Topology) {
	t.Helper()
	l := looktest.At(t, testenv.Machines[name]())
	return l.Run, l.Tree
}

func written(t *testing.T, p *Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// the parts of a page, by their tags.
var parts = regexp.MustCompile(`(?s)<style>(.*?)</style>.*<script type="application/json" id="data">(.*?)</script>\n<script>(.*?)</script>`)

// dataOf is the data of a written page.
func dataOf(t *testing.T, text string) data {
	t.Helper()
	m := parts.FindStringSubmatch(text)
	if m == nil {
		t.Fatal("the page has no data")
	}
	var d data
	if err := json.Unmarshal([]byte(m[2]), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The policy names the style and the script that the page has, and lets nothing else pass.
func TestPolicy(t *testing.T) {
	run, tree := looked(t, "small-hgx")
	text := written(t, Machine("machine0", run, tree))
	m := parts.FindStringSubmatch(text)
	policy := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)
	if m == nil || policy == nil {
		t.Fatal(text[:2000])
	}
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	for _, want := range []string{"default-src 'none';", "script-src " + hash(m[3]) + ";", "style-src " + hash(m[1]) + ";", "connect-src 'none';", "base-uri 'none';", "form-action 'none'"} {
		if !strings.Contains(policy[1], want) {
			t.Errorf("%s is not in %s", want, policy[1])
		}
	}
	if strings.Contains(policy[1], "unsafe") {
		t.Error(policy[1])
	}
	// The policy stands before all that it is about.
	if strings.Index(text, policy[0]) > strings.Index(text, "<style>") {
		t.Error("the policy comes late")
	}
}

// The script makes no markup of texts, and asks for nothing.
func TestScriptMakesNoMarkup(t *testing.T) {
	script := assetsOf(".js")
	for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "createContextualFragment", "DOMParser", "fetch(", "XMLHttpRequest", "WebSocket", "import(", "</script", "<!--", "localStorage", "setTimeout(\"", ".src", ".href", "http:", "https:"} {
		if strings.Contains(script, word) {
			t.Errorf("the script has %s", word)
		}
	}
	style := assetsOf(".css")
	for _, word := range []string{"url(", "@import", "</style"} {
		if strings.Contains(style, word) {
			t.Errorf("the style has %s", word)
		}
	}
	if len(script) < 10_000 || len(style) < 5_000 {
		t.Errorf("%d and %d bytes", len(script), len(style))
	}
}

// A text of a machine cannot leave the data, and stays as it is.
func TestTextsStayData(t *testing.T) {
	bad := []string{`</script><script>x()</script>`, `<!--<script>`, "a\u2028b\u2029c", `]]>&lt;`, "\xff\xfe", "\x00"}
	run := result.Run{Machine: result.Host{Kernel: strings.Join(bad, " ")}}
	for i, text := range bad {
		run.Pairs = append(run.Pairs, result.Pair{GPU: text, NIC: fmt.Sprint("nic", i), Outcome: "lost", Counts: true, Why: []string{text}})
	}
	seen := NewFleet()
	merge := fleet.Merge{}
	merge.Add("node</script>", run)
	seen.Observe(0, &run, 0)
	text := written(t, seen.Page(merge.Report()))
	d := dataOf(t, text)
	block := parts.FindStringSubmatch(text)[2]
	for _, sign := range []string{"<", ">", "&", "\u2028", "\u2029"} {
		if strings.Contains(block, sign) {
			t.Errorf("the data has %q", sign)
		}
	}
	for _, want := range []string{bad[0], bad[1], bad[2], "\ufffd", "\x00"} {
		if !slices.Contains(d.Texts, want) {
			t.Errorf("%q is not among %q", want, d.Texts)
		}
	}
	if n := strings.Count(text, "<script"); n != 2 {
		t.Errorf("%d scripts", n)
	}
}

// The worst nodes come first, and alike ones are one row.
func TestRows(t *testing.T) {
	of := func(result string, s result.Summary) fleet.Node {
		return fleet.Node{Result: result, Summary: s, Failing: []string{}, Unknown: []string{}}
	}
	r := fleet.Report{}
	for i, n := range []fleet.Node{
		of("pass", result.Summary{Direct: 4}), of("fail", result.Summary{Staged: 1, Direct: 3}), of("unknown", result.Summary{Unknown: 4}), of("fail", result.Summary{Staged: 4}),
		of("warn", result.Summary{Direct: 4}), of("fail", result.Summary{Lost: 1, Direct: 3}), of("pass", result.Summary{Direct: 4}), of("unknown", result.Summary{Unknown: 1, Direct: 3}), of("fail", result.Summary{Staged: 4}),
	} {
		n.Node, n.Added = fmt.Sprint("n", i), i
		r.Nodes = append(r.Nodes, n)
	}
	r.Nodes[3].Since = []result.Drift{{What: "pair", Name: "a", Change: "changed"}}
	r.Nodes[8].Since = []result.Drift{{What: "pair", Name: "a", Change: "worse"}}
	f := NewFleet()
	p := f.Page(r)
	var got []string
	for _, row := range p.data.Rows {
		var names []string
		for _, n := range row.Nodes {
			names = append(names, p.data.Texts[n])
		}
		got = append(got, strings.Join(names, "+"))
	}
	want := []string{"n5", "n8", "n3", "n1", "n2", "n7", "n4", "n0+n6"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A node whose file cannot be read is unknown, with the reason.
func TestUnreadNode(t *testing.T) {
	seen := NewFleet()
	merge := fleet.Merge{Observe: seen.Observe}
	merge.AddUnread("lost", errors.New("it is empty"))
	p := seen.Page(merge.Report())
	r, its := p.data.Rows[0], p.data.Sorts[p.data.Rows[0].Sort]
	if its.Kind != -1 || its.Result != "unknown" || p.data.Texts[its.Error] != "it is empty" || r.Since != -1 || r.Differs != -1 {
		t.Errorf("%+v %+v", r, its)
	}
}

// All places in the data are places that are there.
func TestPlaces(t *testing.T) {
	run, tree := looked(t, "small-hgx")
	run.Baseline, run.Drift = "before.json", []result.Drift{{What: "machine", Name: "kernel", Before: "1", After: "2", Change: "changed"}}
	seen := NewFleet()
	merge := fleet.Merge{}
	for i := range 3 {
		x := run
		x.Machine.Kernel = fmt.Sprint(i % 2)
		merge.Add(fmt.Sprint("n", i), x)
		seen.Observe(i, &x, i)
	}
	for _, p := range []*Page{Machine("machine0", run, tree), seen.Page(merge.Report())} {
		d := dataOf(t, written(t, p))
		var walk func(v reflect.Value)
		n := 0
		walk = func(v reflect.Value) {
			switch v.Kind() {
			case reflect.Pointer:
				if !v.IsNil() {
					walk(v.Elem())
				}
			case reflect.Struct:
				for i := range v.NumField() {
					walk(v.Field(i))
				}
			case reflect.Slice, reflect.Array:
				for i := range v.Len() {
					walk(v.Index(i))
				}
			case reflect.Int:
				if v.Type() == reflect.TypeFor[text]() {
					if n++; v.Int() < -1 || v.Int() >= int64(len(d.Texts)) {
						t.Errorf("%d is no text", v.Int())
					}
				}
			}
		}
		walk(reflect.ValueOf(d))
		if n < 100 {
			t.Errorf("%d texts", n)
		}
		for _, k := range d.Kinds {
			cells := 0
			for _, g := range d.Layouts[k.Layout].Groups {
				cells += len(g.NICs)
			}
			if cells != len(k.Cells) || slices.Max(k.Cells) >= len(d.Details) {
				t.Errorf("%d cells for %d pairs", len(k.Cells), cells)
			}
		}
	}
}

// The page has a label, and no time unless one is given.
func TestLabel(t *testing.T) {
	run, tree := looked(t, "small-hgx")
	p := Machine("machine0", run, tree)
	if a, b := written(t, p), written(t, Machine("machine0", run, tree)); a != b {
		t.Error("the same run has two pages")
	}
	p.Label("v1", time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC))
	if d := dataOf(t, written(t, p)); d.Version != "v1" || d.Made != "2026-11-29 10:00 UTC" {
		t.Errorf("%q %q", d.Version, d.Made)
	}
	p.Label("v2", time.Time{})
	if d := dataOf(t, written(t, p)); d.Version != "v2" || d.Made != "" {
		t.Errorf("%q %q", d.Version, d.Made)
	}
}
