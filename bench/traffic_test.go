// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReadPerftest(t *testing.T) {
	const bw = `---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 64         1600             0.00               3.05   		   0.049971
---------------------------------------------------------------------------------------
`
	const large = ` 4194304    8                0.00               210.50   		   0.000053
`
	const lat = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      1000          41.20          901.10       55.30   	       60.01        	12.00  		90.10   		901.10
`
	for _, c := range []struct {
		out  string
		t    traffic
		want float64
	}{
		{bw, traffic{size: 64, count: 1600}, 49971},
		{large, traffic{size: 4 << 20, count: 8}, 52.625},
		{lat, traffic{size: 64, count: 1000, latency: true}, 55.30},
	} {
		if v, err := readPerftest(c.out, c.t); err != nil || math.Abs(v-c.want) > 1e-6 {
			t.Errorf("%v, %v; want %v", v, err, c.want)
		}
		c.t.count++
		if v, err := readPerftest(c.out, c.t); err == nil {
			t.Errorf("%v from a run of another length", v)
		}
	}
}

// Limits, and the noise, in either direction.
func TestJudge(t *testing.T) {
	row := func(what string, median, p10, p90 float64, rounds int) trafficRow {
		r := trafficRow{What: what, Ratio: ratio{Median: median, Rounds: rounds}, Noise: ratio{Median: 1, P10: p10, P90: p90}}
		r.judge()
		return r
	}
	for _, c := range []struct {
		row  trafficRow
		want string
	}{
		{row("rate", 0.96, 0.99, 1.01, 30), "ok"},
		{row("rate", 0.90, 0.85, 1.20, 30), "ok: within the noise"},
		{row("rate", 0.90, 0.95, 1.05, 30), "MISSED"},
		{row("latency", 1.10, 0.99, 1.01, 30), "ok"},
		{row("latency", 1.30, 0.90, 1.35, 30), "ok: within the noise"},
		{row("latency", 1.30, 0.90, 1.20, 30), "MISSED"},
		{row("rate", 0.96, 0.99, 1.01, 7), "ok (7 rounds are no measurement)"},
	} {
		if c.row.Verdict != c.want {
			t.Errorf("%+v, want %q", c.row, c.want)
		}
	}
	var b strings.Builder
	printed := row("rate", 0.96, 0.99, 1.01, 30)
	printed.Through = throughEndpoint
	printTraffic(&b, []trafficRow{printed})
	for _, want := range []string{"0.960 (", "\nendpoint "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q, without %q", b.String(), want)
		}
	}
}

func TestLatencyIsTheMedian(t *testing.T) {
	at := times{0, 10 * time.Microsecond, 12 * time.Microsecond, 112 * time.Microsecond}
	if got := at.median(2); got != 5 {
		t.Errorf("%v us, want half of 10", got)
	}
}

// A count that a side and perftest both accept: whole batches, and not few.
func TestCalibrate(t *testing.T) {
	for _, c := range []struct {
		traffic traffic
		value   float64
		want    int
	}{
		{traffic{op: "write", size: 64, batch: 16}, 50_000, 2992},
		{traffic{op: "write", size: 64, batch: 16}, 3, 16},
		{traffic{op: "write", size: 4 << 20, batch: 1}, 40, 8},
		{traffic{op: "send", size: 64, batch: 1, latency: true}, 50, 600},
		{traffic{op: "read", size: 64, batch: 1, latency: true}, 50, 1200},
	} {
		k := &compared{traffic: c.traffic}
		err := k.calibrate(60*time.Millisecond, func(*compared, int) (float64, error) { return c.value, nil })
		if err != nil || k.count != c.want {
			t.Errorf("%+v: %d, %v; want %d", c.traffic, k.count, err, c.want)
		}
	}
}

// Latencies are of every size that was asked for, and of small ones otherwise.
func TestKinds(t *testing.T) {
	all := everySize()
	if len(all) != 17 || all[0] != 64 || all[16] != 4<<20 {
		t.Errorf("every size: %v", all)
	}
	for _, c := range []struct {
		opt              options
		rates, latencies int
	}{
		{options{sizes: trafficSizes}, 4, 2},
		{options{sizes: all, chosen: true}, 17, 17},
		{options{sizes: []int64{4 << 20}, chosen: true}, 1, 1},
	} {
		list, err := kindsOf(traffic{through: throughEndpoint, gid: 3, mtu: 1024, reads: 5}, c.opt, []string{"write"}, []string{"rate", "latency"})
		if err != nil {
			t.Fatal(err)
		}
		rates := 0
		for _, k := range list {
			if !k.latency {
				rates++
			}
			if k.latency != (k.depth == 1) || k.latency && k.batch != 1 || k.through != throughEndpoint || k.gid != 3 || k.mtu != 1024 || k.reads != 5 {
				t.Errorf("%+v", k.traffic)
			}
		}
		if rates != c.rates || len(list)-rates != c.latencies {
			t.Errorf("%v: %d rates, %d latencies", c.opt.sizes, rates, len(list)-rates)
		}
	}
	for _, bad := range [][3]string{{throughIbvfd, "write", "speed"}, {throughIbvfd, "fly", "rate"}, {"libfabric", "write", "rate"}} {
		if _, err := kindsOf(traffic{through: bad[0]}, options{sizes: all}, bad[1:2], bad[2:]); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

// READ's latency is there with either place of rxe's worker, and nothing else is.
func TestPlaced(t *testing.T) {
	list := func() (all []*compared) {
		for _, op := range []string{"write", "read"} {
			all = append(all, &compared{traffic: traffic{op: op}}, &compared{traffic: traffic{op: op, latency: true}})
		}
		return all
	}
	var got []string
	for _, c := range placed(list(), nil) {
		got = append(got, strings.TrimSpace(c.op+" "+c.worker))
	}
	if want := []string{"write", "write", "read", "read as scheduled", "read beside the client"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, c := range placed(list(), os.ErrPermission) {
		if c.worker != "" {
			t.Errorf("%s: %s, where it cannot be placed", c.traffic, c.worker)
		}
	}
}
