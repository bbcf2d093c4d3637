// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"testing"
)

func TestReadUCX(t *testing.T) {
	const head = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
	v, err := readUCX("| API: protocol layer |\n"+head+"  50,16.000,88213.742,92196.116,11.34,10.85,11,11\n", 1<<20)
	if want := float64(1<<20) / 92196.116e-6; err != nil || math.Abs(v-want) > 1 {
		t.Errorf("%v, %v; want %v", v, err, want)
	}
	for _, out := range []string{"", head, "50,1,2,3\n", head + "50,16.000,1,0,11.34,10.85,11,11\n", head + "50,16.000,1,x,11.34,10.85,11,11\n"} {
		if v, err := readUCX(out, 1<<20); err == nil {
			t.Errorf("%v from %q", v, out)
		}
	}
}

func TestJudgeRails(t *testing.T) {
	for _, c := range []struct {
		median, low float64
		rounds      int
		want        string
	}{
		{1.0, 0.99, 30, "ok"},
		{0.99, 0.98, 30, "ok: within the noise"},
		{0.97, 0.98, 30, "MISSED"},
		{1.0, 0.99, 3, "ok (3 rounds are no measurement)"},
	} {
		row := railsRow{Ratio: ratio{Median: c.median, Rounds: c.rounds}, Noise: ratio{P10: c.low}}
		if row.judge(); row.Verdict != c.want {
			t.Errorf("%+v: %q", c, row.Verdict)
		}
	}
	var out strings.Builder
	printRails(&out, []railsRow{{Rails: 2, Waits: "sleep", Verdict: "ok"}})
	if !strings.Contains(out.String(), "sleep") {
		t.Error(out.String())
	}
}
