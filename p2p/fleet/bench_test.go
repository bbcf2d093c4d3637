// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/gpurdma/gpurdma/internal/looktest"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// documentOf is what p2pcheck --json prints of a machine.
func documentOf(tb testing.TB, name string) []byte {
	tb.Helper()
	r := looktest.At(tb, testenv.Machines[name]()).Run
	data, err := json.Marshal(document{Schema: result.Schema, Command: "check", Status: r.Status(), Result: &r})
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// BenchmarkReport merges the runs of a cluster. Each benchmark has to run in a process of its own: the memory is
// the most that the process has had.
func BenchmarkReport(b *testing.B) {
	text := documentOf(b, "hgx")
	b.Logf("%d bytes a node", len(text))
	for _, c := range []struct {
		name  string
		nodes int
		of    func(i int) []byte
	}{
		{"10000-equal", 10_000, func(int) []byte { return text }},
		{"10000-kinds", 10_000, func(i int) []byte {
			return bytes.ReplaceAll(text, []byte("7.2.12+deb13"), fmt.Appendf(nil, "7.2.%d+deb13", i%7))
		}},
		{"10000-one-fact", 10_000, func(i int) []byte {
			return bytes.Replace(text, []byte(`"cpu":"`), fmt.Appendf(nil, `"cpu":"%d `, i), 1)
		}},
		// Each finding of each node differs from those of all others.
		{"500-all-different", 500, func(i int) []byte {
			return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte(`"read":"`), fmt.Appendf(nil, `"read":"%d `, i)), []byte(`"result":"pass"`), []byte(`"result":"fail"`))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			before := testenv.ProcessTime(b)
			for b.Loop() {
				var m Merge
				for i := range c.nodes {
					if err := m.AddFrom(fmt.Sprintf("node%05d", i), bytes.NewReader(c.of(i))); err != nil {
						b.Fatal(err)
					}
				}
				if err := m.Report().Text(io.Discard, render.Style{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((testenv.ProcessTime(b)-before).Seconds()/float64(b.N), "cpu-s/op")
			peak, err := testenv.PeakMemory(os.Getpid())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(peak)/(1<<20), "MiB-at-most")
		})
	}
}
