// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// bareLoop is a benchmark of a package's tests that needs no NIC. Its result is
// processor time, which other load on the machine disturbs less than the clock's time.
type bareLoop struct {
	what string
	test string // the test binary, in the directory of -tests
	run  string // the benchmark
	unit string // of its result
	peer string // the same in C; "" if there is none
	most float64
}

var bareLoops = []bareLoop{
	{"post and poll 64: fill, post, poll, look", "ibvfd.test", "PostAndPoll/^batch=64$/^Go$", "cpu-ns/WR", "PostAndPoll/^batch=64$/^C$", 0},
	{"post and poll 64: the binding's share", "ibvfd.test", "PostAndPoll/^batch=64$/^binding$", "cpu-ns/WR", "PostAndPoll/^batch=64$/^C$", 15},
	{"layout lowered, 10,000 blocks of a list", "lower.test", "Lower/^list$/^10000$", "cpu-ns/op", "", 1e6},
	{"layout lowered, 10,000 blocks of a list over 64 MRs", "lower.test", "Lower/^list-64-MRs$/^10000$", "cpu-ns/op", "", 1e6},
	{"layout lowered, 10,000 interleaved blocks", "lower.test", "Lower/^interleaved$/^10000$", "cpu-ns/op", "", 1e6},
}

// bindingRow is the result of a loop.
type bindingRow struct {
	What    string  `json:"what"`
	Unit    string  `json:"unit"`
	Ours    ratio   `json:"ours"` // of each round
	C       *ratio  `json:"c,omitempty"`
	OverC   *ratio  `json:"ours_over_c,omitempty"`
	Noise   ratio   `json:"noise"` // C over C again; ours over ours where there is no C
	Allocs  float64 `json:"allocs_per_op"`
	Most    float64 `json:"at_most,omitempty"`
	Verdict string  `json:"verdict"`
}

// benchBinding runs every loop in turns, and returns the exit status.
func benchBinding(ctx context.Context, opt options, tests string, asJSON bool) int {
	var rows []bindingRow
	var err error
	for _, l := range bareLoops {
		var r bindingRow
		if r, err = l.compare(ctx, opt, tests); err != nil {
			break
		}
		rows = append(rows, r)
	}
	return report(asJSON, "bench-binding/v1", rows, printBinding, err)
}

// compare runs the loop, its peer and the peer again, or the loop twice. Each turn is
// a process of its own, and each round begins with the next side.
func (l bareLoop) compare(ctx context.Context, opt options, tests string) (bindingRow, error) {
	r := bindingRow{What: l.what, Unit: l.unit, Most: l.most}
	sides := []string{l.run, l.run}
	if l.peer != "" {
		sides = []string{l.run, l.peer, l.peer}
	}
	values := make([][]float64, len(sides))
	for round := range opt.rounds {
		for i := range sides {
			k := (i + round) % len(sides)
			v, allocs, err := l.turn(ctx, opt.slice, tests, sides[k])
			if err != nil {
				return r, err
			}
			values[k] = append(values[k], v)
			if k == 0 {
				r.Allocs = max(r.Allocs, allocs)
			}
		}
	}
	r.summarise(values)
	return r, nil
}

// summarise fills in what the rounds have shown: values are ours and ours again,
// or ours, C's and C's again.
func (r *bindingRow) summarise(values [][]float64) {
	over := func(a, b []float64) ratio {
		q := make([]float64, len(a))
		for i := range a {
			q[i] = a[i] / b[i]
		}
		return newRatio(q)
	}
	r.Ours = newRatio(values[0])
	if len(values) == 3 {
		c, overC := newRatio(values[1]), over(values[0], values[1])
		r.C, r.OverC, r.Noise = &c, &overC, over(values[2], values[1])
	} else {
		r.Noise = over(values[1], values[0])
	}
	switch {
	case r.Most == 0:
	case r.Ours.Median <= r.Most:
		r.Verdict = "ok"
	default:
		r.Verdict = "MISSED"
	}
	if r.Ours.Rounds < fewRounds {
		r.Verdict = strings.TrimSpace(fmt.Sprintf("%s (%d rounds are no measurement)", r.Verdict, r.Ours.Rounds))
	}
}

// turn runs one benchmark of a test binary once.
func (l bareLoop) turn(ctx context.Context, length time.Duration, tests, run string) (value, allocs float64, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(tests, l.test), "-test.run=^$", "-test.bench="+run, "-test.benchtime="+length.String(), "-test.benchmem")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s%s", err, out, exit.Stderr)
		}
		return 0, 0, fmt.Errorf("%s -test.bench %s: %w", l.test, run, err)
	}
	return readBenchmark(string(out), l.unit)
}

// readBenchmark finds the result of the one benchmark that ran: its name, how
// often it ran, and pairs of value and unit.
func readBenchmark(out, unit string) (value, allocs float64, err error) {
	found := 0
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		found++
		for i := 2; i+1 < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return 0, 0, fmt.Errorf("%q: %w", line, err)
			}
			switch f[i+1] {
			case unit:
				value = v
			case "allocs/op":
				allocs = v
			}
		}
	}
	if found != 1 || value <= 0 {
		return 0, 0, fmt.Errorf("%d benchmarks with %s in %q, not one", found, unit, out)
	}
	return value, allocs, nil
}

func printBinding(to io.Writer, rows []bindingRow) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "processor time\tours (p10-p90)\tC\tours/C (p10-p90)\tnoise\tallocations\trounds\taim\t")
	for _, r := range rows {
		c, overC := "", ""
		if r.C != nil {
			c, overC = fmt.Sprintf("%.1f", r.C.Median), r.OverC.String()
		}
		aim := ""
		if r.Most > 0 {
			aim = fmt.Sprintf("%.0f", r.Most)
		}
		fmt.Fprintf(w, "%s\t%.1f (%.1f-%.1f) %s\t%s\t%s\t%v\t%g\t%d\t%s\t%s\n",
			r.What, r.Ours.Median, r.Ours.P10, r.Ours.P90, r.Unit, c, overC, r.Noise, r.Allocs, r.Ours.Rounds, aim, r.Verdict)
	}
	_ = w.Flush()
}
