// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/checks"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// documentOf is what p2pcheck --json prints of a machine.
func documentOf(tb testing.TB, name string) []byte {
	tb.Helper()
	m := machine.Open(testenv.Machines[name]().Write(tb))
	gpus, err1 := drivers.GPUs(m)
	nics, err2 := drivers.NICs(m)
	if err1 != nil || err2 != nil {
		tb.Fatal(err1, err2)
	}
	var pairs []p2p.Pair
	for _, g := range gpus {
		for _, n := range nics {
			pairs = append(pairs, p2p.Judge(m, g, n))
		}
	}
	p2p.Combine(m, pairs)
	r := result.New(m, gpus, nics, pairs)
	r.AddFindings(checks.Run(m, check.Subject{GPUs: gpus, NICs: nics, Pairs: pairs}))
	data, err := jsonOf(document{Schema: result.Schema, Command: "check", Status: r.Status(), Result: &r})
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// processorTime is what this process has used so far, in nanoseconds.
func processorTime(tb testing.TB) int64 {
	tb.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// peakMiB is the greatest amount of memory that this process has had.
func peakMiB(tb testing.TB) float64 {
	tb.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		tb.Fatal(err)
	}
	return kib / 1024
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
			before := processorTime(b)
			for b.Loop() {
				var m Merge
				for i := range c.nodes {
					if err := m.AddFrom(fmt.Sprintf("node%05d", i), bytes.NewReader(c.of(i))); err != nil {
						b.Fatal(err)
					}
				}
				if err := m.Report().Text(io.Discard, plain); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/1e9/float64(b.N), "cpu-s/op")
			b.ReportMetric(peakMiB(b), "MiB-at-most")
		})
	}
}
