// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/formats"
	"github.com/gpurdma/gpurdma/p2p/result"
)

func pair(gpu, nic, outcome string) result.Pair {
	return result.Pair{GPU: gpu, NIC: nic, Outcome: outcome, Counts: true}
}

func text(t *testing.T, l Look) string {
	t.Helper()
	families, err := Gather(l)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Write(&b, families); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// whole is a look with each metric.
func whole() Look {
	far := 7
	r := &result.Run{
		Pairs:  []result.Pair{pair("0000:13:00.0", "mlx5_0", "direct"), pair("0000:13:00.0", "mlx5_1", "staged")},
		Checks: []result.Finding{{ID: "NET-MTU", Result: "warn"}, {ID: "NET-MTU", Result: "fail"}, {ID: "IOMMU-MODE", Result: "pass"}},
		Live:   &result.Live{Contradicted: 2},
	}
	r.Pairs[0].Decision.Distance = &far
	r.Pairs[0].Proof, r.Pairs[0].Links = &result.Proof{Outcome: "direct"}, []result.Link{{Link: chain.Proof.String(), State: chain.Holds.String()}}
	return Look{
		Input: formats.Input{Found: r, Status: 1, Errors: []formats.Problem{{Kind: cli.KindUnavailable, Message: "a"}, {Kind: cli.KindUnavailable, Message: "b"}, {Kind: "new", Message: "c"}}},
		Ended: time.UnixMilli(1764400000250), Took: 1500 * time.Millisecond, Version: "v1.2", Revision: "abc",
	}
}

func TestMetrics(t *testing.T) {
	got := text(t, whole())
	for _, want := range []string{
		`p2pcheck_build_info{goversion="` + runtime.Version() + `",revision="abc",version="v1.2"} 1`,
		`p2pcheck_status 1`,
		`p2pcheck_last_look_timestamp_seconds 1.76440000025e+09`,
		`p2pcheck_look_duration_seconds 1.5`,
		`p2pcheck_errors{kind="unavailable"} 2`,
		`p2pcheck_errors{kind="usage"} 0`,
		`p2pcheck_errors{kind="other"} 1`, // a kind that is not on the list is no new series
		`p2pcheck_pair_outcome{gpu="0000:13:00.0",nic="mlx5_0",outcome="direct"} 1`,
		`p2pcheck_pair_outcome{gpu="0000:13:00.0",nic="mlx5_1",outcome="staged"} 1`,
		`p2pcheck_pair_distance{gpu="0000:13:00.0",nic="mlx5_0"} 7`,
		`p2pcheck_pair_proof{gpu="0000:13:00.0",nic="mlx5_0",outcome="direct"} 1`,
		`p2pcheck_predictions_contradicted 2`,
		`p2pcheck_check{id="NET-MTU",result="fail"} 1`,
		`p2pcheck_check{id="IOMMU-MODE",result="pass"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\np2pcheck_"); n != 4+len(cli.Kinds)+2+1+1+1+2 {
		t.Errorf("%d series in\n%s", n, got)
	}
	if problems, err := testutil.CollectAndLint(whole()); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// The longest run of errors, whatever they say, has as many series as none.
func TestErrorsAreNoSeries(t *testing.T) {
	quiet := testutil.CollectAndCount(Look{})
	var l Look
	for i := range 10000 {
		l.Errors = append(l.Errors, formats.Problem{Kind: fmt.Sprint("kind", i), Message: fmt.Sprint("message", i)})
	}
	if n := testutil.CollectAndCount(l); n != quiet {
		t.Errorf("%d series, %d without errors", n, quiet)
	}
	if got := text(t, l); strings.Contains(got, "message") || !strings.Contains(got, `p2pcheck_errors{kind="other"} 10000`) {
		t.Error(got)
	}
}

// Names that a file system allows are values of labels, and two devices of one name are no error.
func TestNames(t *testing.T) {
	r := &result.Run{Pairs: []result.Pair{
		pair("a\"b\\c\nd", "\xff\x1b[2J", "direct"), pair("a\"b\\c\nd", "\xff\x1b[2J", "direct"), pair("a\"b\\c\nd", "\xff\x1b[2J", "staged"),
	}}
	got := text(t, Look{Input: formats.Input{Found: r}})
	const want = `p2pcheck_pair_outcome{gpu="a\"b\\c\nd",nic="\\xff\\x1b[2J",outcome="direct"} 1` + "\n"
	if !strings.Contains(got, want) || strings.Count(got, "\np2pcheck_pair_outcome{") != 1 {
		t.Errorf("%q", got)
	}
}

// docs/how-to/prometheus.md has each metric with its labels, and no other.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/how-to/prometheus.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(p2pcheck_[a-z_]+)` \\|([^|]*)\\|").FindAllStringSubmatch(string(doc), -1) {
		labels := regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(row[2], -1)
		var names []string
		for _, l := range labels {
			names = append(names, l[1])
		}
		slices.Sort(names)
		documented[row[1]] = fmt.Sprint(names)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(whole())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		var names []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			names = append(names, l.GetName())
		}
		if got, ok := documented[f.GetName()]; !ok || got != fmt.Sprint(names) {
			t.Errorf("%s has labels %v; docs/how-to/prometheus.md has %s", f.GetName(), names, got)
		}
		delete(documented, f.GetName())
	}
	for name := range documented {
		t.Errorf("docs/how-to/prometheus.md has %s, which p2pcheck does not have", name)
	}
}
