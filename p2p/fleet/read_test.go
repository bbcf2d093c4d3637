// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// run is a document with a result.
func run(result string) string {
	return `{"schema":"p2pcheck/v2","command":"check","exit_status":0,"result":` + result + `,"errors":[{"kind":"unavailable","message":"no"}]}`
}

const onePair = `{"gpu":"g","nic":"n","outcome":"direct","counts":true,"links":[{"link":"library","state":"holds","why":[],"evidence":[]}]}`

func TestRead(t *testing.T) {
	got, err := Read(strings.NewReader(run(`{"machine":{"kernel":"6.12.1","p2pdma":"yes"},"pairs":[` + onePair + `],"checks":null,"live":null}`)))
	if err != nil || got.Machine.Kernel != "6.12.1" || len(got.Pairs) != 1 || got.Pairs[0].Links[0].State != "holds" || got.Schema != result.Schema || len(got.Said) != 1 || got.Said[0] != "no" {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                                    "it is empty",
		"none":                                "it is not what p2pcheck --json prints: byte 1",
		"{}":                                  `it is not what p2pcheck --json prints: schema "", command ""`,
		`[]`:                                  "it is not what p2pcheck --json prints: its value is of another kind",
		run(`{"pairs":7}`):                    "it is not what p2pcheck --json prints: /result/pairs has a value of another kind",
		run(`{"pairs":[{"gpu":1}]}`):          "it is not what p2pcheck --json prints: /result/pairs/0/gpu has a value of another kind",
		run(`null`):                           "it is of a run that found nothing",
		run(`{"pairs":[{"outcome":"good"}]}`): `a pair has the outcome "good"`,
		run(`{"pairs":[{"outcome":"direct","gpu":"a","nic":"b"}]}`): "a -> b has no links, which a pair of p2pcheck/v2 has",
		run(`{"checks":[{"id":"A","result":"PASS"}]}`):              `a finding of A has the result "PASS"`,
		run(`{}`) + "x": "it is not what p2pcheck --json prints: byte ",
		run(`{"pairs":[` + strings.Replace(onePair, `"links"`, `"proof":{"outcome":"x"},"links"`, 1) + `]}`): `a proof has the outcome "x"`,
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

// Read does not take the counts of a document: it counts the pairs and the checks that the document has.
func TestCountsOfDocuments(t *testing.T) {
	lost := strings.Replace(onePair, "direct", "lost", 1)
	for name, c := range map[string]struct {
		text, result string
		direct       int
	}{
		"a lost pair":            {`{"pairs":[` + lost + `],"summary":{"direct":16},"tally":{"pass":3}}`, "fail", 0},
		"a check that fails":     {`{"pairs":[` + onePair + `],"checks":[{"id":"A","result":"fail"}],"summary":{"direct":1}}`, "fail", 1},
		"a check that decides":   {`{"pairs":[` + onePair + `],"checks":[{"id":"A","result":"unknown","decides":true}],"summary":{"direct":1}}`, "unknown", 1},
		"no pair":                {`{"pairs":[],"summary":{"direct":16}}`, "unknown", 0},
		"as it is, with a check": {`{"pairs":[` + onePair + `],"checks":[{"id":"A","result":"pass"}]}`, "pass", 1},
	} {
		var m Merge
		if err := m.AddFrom(name, strings.NewReader(strings.Replace(run(c.text), `[{"kind":"unavailable","message":"no"}]`, "[]", 1))); err != nil {
			t.Fatal(err)
		}
		if n := m.Report().Nodes[0]; n.Result != c.result || n.Summary.Direct != c.direct {
			t.Errorf("%s: %s, %d direct", name, n.Result, n.Summary.Direct)
		}
	}
}

// reading makes this test binary read a file, and print how much memory it ever had.
const reading = "GPURDMA_FLEET_READS"

func TestMain(m *testing.M) {
	name := os.Getenv(reading)
	if name == "" {
		os.Exit(m.Run())
	}
	f, err := os.Open(name)
	if err == nil {
		_, err = Read(f)
	}
	peak, unknown := testenv.PeakMemory(os.Getpid())
	if unknown != nil {
		fmt.Fprintln(os.Stderr, unknown)
		os.Exit(1)
	}
	fmt.Println(peak, err == nil)
}

// A document that costs more memory than a machine's is refused: 64 MB and 2 seconds are enough for any. The
// time has threefold slack.
func TestHostileDocuments(t *testing.T) {
	testenv.Exhaustive(t) // the race detector needs memory of its own
	many := func(one string, n int) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		read bool
	}{
		"findings":            {run(`{"checks":[` + many(`{}`, 3_000_000) + `]}`), false},
		"findings, in bounds": {run(`{"checks":[` + many(`{"result":"pass"}`, maxFindings) + `]}`), true},
		"pairs":               {run(`{"pairs":[` + many(`{}`, 3_000_000) + `]}`), false},
		"pairs, in bounds":    {run(`{"pairs":[` + many(`{"links":[`+many("{}", maxLinks)+`],"outcome":"direct"}`, maxPairs) + `]}`), true},
		"links":               {run(`{"pairs":[{"links":[` + many(`{}`, 100_000) + `]}]}`), false},
		"evidence":            {run(`{"pairs":[` + many(`{"links":[{"evidence":[`+many("{}", maxItems)+`]}],"outcome":"direct"}`, 140) + `]}`), true},
		"GPUs":                {run(`{"gpus":[` + many(`{}`, 3_000_000) + `]}`), false},
		"texts":               {run(`{"unread":[` + many(`""`, 3_000_000) + `]}`), false},
		"unknown names":       {run(`{"x":[` + many(`[]`, 3_000_000) + `]}`), false},
		"objects":             {run(`{` + strings.TrimSuffix(strings.Repeat(`"a":{},`, 1_500_000), ",") + `}`), false},
		"nesting":             {run(`{"x":` + deep(4_000_000) + `}`), false},
		"one text":            {run(`{"machine":{"kernel":"` + strings.Repeat("x", 7<<20) + `"}}`), true},
		"escapes":             {run(`{"machine":{"kernel":"` + strings.Repeat(`\u0041`, 1<<20) + `"}}`), true},
		"too long":            {strings.Repeat(" ", 3*MaxBytes), false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "run.json")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			defer cancel()
			reader := exec.CommandContext(ctx, self)
			reader.Env = append(os.Environ(), reading+"="+file)
			out, err := reader.Output()
			var peak int64
			var read bool
			if n, scanned := fmt.Sscan(string(out), &peak, &read); n != 2 || err != nil {
				t.Fatal(string(out), err, scanned)
			}
			if read != c.read {
				t.Errorf("read: %v", read)
			}
			t.Logf("%d MiB for %d MiB", peak>>20, len(c.text)>>20)
			if peak > 64<<20 {
				t.Errorf("%d MiB for %d MiB", peak>>20, len(c.text)>>20)
			}
		})
	}
}

// Files with the same bytes are one run to the report, and each is a node of it.
func TestEqualFiles(t *testing.T) {
	var m Merge
	text := run(`{"machine":{"kernel":"6.12.1"},"pairs":[` + strings.Replace(onePair, "direct", "refused", 1) + `],"checks":[{"id":"NET-X","result":"fail","title":"x"}],"summary":{"refused":1},"tally":{"fail":1}}`)
	for i := range 100 {
		if err := m.AddFrom(fmt.Sprint("node", i), bytes.NewReader([]byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.AddFrom("other", strings.NewReader(strings.Replace(text, "6.12.1", "6.18.1", 1))); err != nil {
		t.Fatal(err)
	}
	r := m.Report()
	if len(r.Nodes) != 101 || len(m.known) != 2 || len(m.files) != 2 || r.Groups != 2 || r.Status() != result.StatusBad {
		t.Errorf("%d nodes, %d shapes, %d groups", len(r.Nodes), len(m.known), r.Groups)
	}
	for _, c := range r.Causes {
		if len(c.Nodes) != 101 {
			t.Errorf("%s: %d nodes", c.What, len(c.Nodes))
		}
	}
	if len(r.Causes) != 3 || r.Nodes[0].Node != "other" || len(r.Nodes[0].Differs) != 1 {
		t.Errorf("%+v", r.Causes)
	}
}
