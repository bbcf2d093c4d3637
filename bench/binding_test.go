// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestReadBenchmark(t *testing.T) {
	const out = `goos: linux
BenchmarkPostAndPoll/batch=64/binding-2         	    1000	       960.5 ns/op	        15.01 ns/WR	       0 B/op	       2 allocs/op
PASS
`
	for unit, want := range map[string]float64{"ns/WR": 15.01, "ns/op": 960.5} {
		if v, allocs, err := readBenchmark(out, unit); v != want || allocs != 2 || err != nil {
			t.Errorf("%s: %v, %v allocations, %v", unit, v, allocs, err)
		}
	}
	for name, bad := range map[string]string{
		"none": "PASS\n", "two": out + out, "of another unit": strings.ReplaceAll(out, "ns/WR", "ns/x"),
		"nothing taken": strings.ReplaceAll(out, "15.01", "0.00"), "no number": strings.ReplaceAll(out, "15.01", "x"),
	} {
		if v, _, err := readBenchmark(bad, "ns/WR"); err == nil {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// Ratios are of one round each, and the aim is for the median of ours.
func TestBindingRow(t *testing.T) {
	many := func(v ...float64) (out []float64) {
		for len(out) < fewRounds {
			out = append(out, v...)
		}
		return out[:fewRounds]
	}
	r := bindingRow{Most: 15}
	r.summarise([][]float64{many(10, 20, 14), many(5, 10, 7), many(10, 20, 14)})
	if r.Verdict != "ok" || r.OverC.Median != 2 || r.Noise.Median != 2 || r.Ours.Median != 14 || r.C.Median != 7 {
		t.Errorf("%+v", r)
	}
	r = bindingRow{Most: 13}
	r.summarise([][]float64{many(10, 20, 14), many(11, 22, 15.4)})
	if r.Verdict != "MISSED" || r.OverC != nil || r.Noise.Median < 1.09 || r.Noise.Median > 1.11 {
		t.Errorf("%+v", r)
	}
	r = bindingRow{Most: 15}
	r.summarise([][]float64{{10, 11}, {10, 11}})
	if r.Verdict != "ok (2 rounds are no measurement)" {
		t.Errorf("%+v", r)
	}
	var b strings.Builder
	printBinding(&b, []bindingRow{r})
	if !strings.Contains(b.String(), "10.0 (10.0-11.0)") {
		t.Error(b.String())
	}
}
