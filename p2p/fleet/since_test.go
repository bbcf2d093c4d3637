// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/result"
)

// A node that has an earlier run differs from it in what became different. Nodes with equal files share the
// answer, and one that was another before has an answer of its own.
func TestSince(t *testing.T) {
	direct := run(`{"machine":{"kernel":"6.12.1"},"pairs":[` + onePair + `]}`)
	refused := strings.Replace(direct, `"direct"`, `"refused"`, 1)
	newer := strings.Replace(direct, "6.12.1", "6.18.1", 1)
	var m Merge
	for name, text := range map[string]string{"same": direct, "worse": direct, "better": refused, "kernel": newer, "broken": "{", "gone": direct} {
		m.Since(name, strings.NewReader(text))
	}
	m.SinceUnread("unread", errors.New("permission denied"))
	for name, text := range map[string]string{"same": direct, "worse": refused, "better": direct, "kernel": direct, "broken": direct, "unread": direct, "new": direct} {
		if err := m.AddFrom(name, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	m.AddUnread("same-name", errors.New("x"))
	r := m.Report()
	want := map[string]string{"same": "[]", "worse": "[pair worse]", "better": "[pair better]", "kernel": "[machine changed]", "broken": "nil", "unread": "nil", "new": "nil", "same-name": "nil"}
	for _, n := range r.Nodes {
		got := "nil"
		if n.Since != nil {
			all := []string{}
			for _, d := range n.Since {
				all = append(all, d.What+" "+d.Change)
			}
			got = fmt.Sprint(all)
		}
		if got != want[n.Node] {
			t.Errorf("%s: %s, want %s", n.Node, got, want[n.Node])
		}
		if (n.SinceError != "") != (n.Node == "broken" || n.Node == "unread") {
			t.Errorf("%s: %q", n.Node, n.SinceError)
		}
	}
	if !slices.Equal(r.Gone, []string{"gone"}) || r.Status() != result.StatusBad {
		t.Errorf("%q, %d", r.Gone, r.Status())
	}
}

// A node that is worse than before makes the status bad, and one without an earlier or a later run unknown.
func TestSinceStatus(t *testing.T) {
	good := Node{Result: "pass"}
	worse, changed, versions, unread := good, good, good, good
	worse.Since = []result.Drift{{Change: "worse"}}
	changed.Since = []result.Drift{{Change: "changed"}}
	versions.Since = []result.Drift{{Change: "worse", AsksMore: true}}
	unread.SinceError = "it is empty"
	for _, c := range []struct {
		report Report
		want   int
	}{
		{Report{Nodes: []Node{good}}, result.StatusGood}, {Report{Nodes: []Node{good, worse}}, result.StatusBad}, {Report{Nodes: []Node{changed, versions}}, result.StatusGood},
		{Report{Nodes: []Node{unread, good}}, result.StatusUnknown}, {Report{Nodes: []Node{good}, Gone: []string{"x"}}, result.StatusUnknown}, {Report{Nodes: []Node{worse}, Gone: []string{"x"}}, result.StatusBad},
	} {
		if got := c.report.Status(); got != c.want {
			t.Errorf("%+v: %d", c.report, got)
		}
	}
}

// Observe sees each file once, in the order of the nodes, and each node knows its causes.
func TestObserve(t *testing.T) {
	bad := run(`{"machine":{"kernel":"6.12.1"},"pairs":[` + strings.Replace(onePair, "direct", "refused", 1) + `],"checks":[{"id":"NET-X","result":"fail","title":"x"}],"summary":{"refused":1},"tally":{"fail":1}}`)
	good := run(`{"machine":{"kernel":"6.12.1"},"pairs":[` + onePair + `],"summary":{"direct":1}}`)
	var saw []string
	m := Merge{Observe: func(at int, r *result.Run, same int) { saw = append(saw, fmt.Sprint(at, r != nil, same)) }}
	for i, text := range []string{good, bad, good, bad} {
		if err := m.AddFrom(fmt.Sprint("n", i), strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"0 true 0", "1 true 1", "2 false 0", "3 false 1"}; !slices.Equal(saw, want) {
		t.Errorf("%q", saw)
	}
	r := m.Report()
	for _, n := range r.Nodes {
		if want := fmt.Sprint("n", n.Added); n.Node != want {
			t.Errorf("%s is called %s", want, n.Node)
		}
		var has []string
		for _, c := range n.Causes {
			has = append(has, r.Causes[c].What)
		}
		var of []string
		for _, c := range r.Causes {
			if slices.Contains(c.Nodes, n.Node) {
				of = append(of, c.What)
			}
		}
		if !slices.Equal(has, of) || slices.Contains(has, "NET-X: x") != (n.Added%2 == 1) {
			t.Errorf("%s: %q, want %q", n.Node, has, of)
		}
	}
}

// ByRemedy has each cause once, and each change, whatever nodes it is for.
func TestByRemedy(t *testing.T) {
	mend := func(change string) *result.Fix { return &result.Fix{Change: change} }
	r := Report{Causes: []Cause{
		{Result: "fail", What: "A-1: x", Nodes: []string{"a"}, Remedy: mend("one")}, {Result: "fail", What: "A-2: x", Nodes: []string{"b"}, Remedy: mend("one")},
		{Result: "unknown", What: "A-3: x", Nodes: []string{"a"}, Remedy: mend("one")}, {Result: "warn", What: "A-4: x", Nodes: []string{"a"}},
	}}
	if got := fmt.Sprint(r.ByRemedy()); got != "[[0 1 2] [3]]" {
		t.Error(got)
	}
}
