// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
)

// trafficRow is the comparison of one kind of traffic.
type trafficRow struct {
	Through  string  `json:"through"` // ibvfd, or endpoint
	Op       string  `json:"op"`
	What     string  `json:"what"` // latency, or rate
	Size     int     `json:"size_bytes"`
	Batch    int     `json:"batch"`
	Count    int     `json:"messages"`           // in a turn
	Ours     float64 `json:"ours"`               // messages a second, or microseconds
	Perftest float64 `json:"perftest"`           // the same; medians of all rounds
	Ratio    ratio   `json:"ours_over_perftest"` // of each round
	Noise    ratio   `json:"perftest_over_itself"`
	Worker   string  `json:"rxe_worker,omitempty"` // "as scheduled", or "beside the client"
	Verdict  string  `json:"verdict"`
}

const (
	leastRate   = 0.95
	mostLatency = 1.10
	fewRounds   = 30 // fewer are no measurement
)

// judge says whether the limit is kept. Within what perftest shows against itself
// there is no difference.
func (r *trafficRow) judge() {
	good, within := r.Ratio.Median >= leastRate, r.Ratio.Median >= r.Noise.P10
	if r.What == "latency" {
		good, within = r.Ratio.Median <= mostLatency, r.Ratio.Median <= r.Noise.P90
	}
	r.Verdict = verdict(good, within, r.Ratio.Rounds)
}

// verdict says whether a limit is kept, or the difference is within the noise.
func verdict(good, within bool, rounds int) string {
	s := "MISSED"
	switch {
	case good:
		s = "ok"
	case within:
		s = "ok: within the noise"
	}
	if rounds < fewRounds {
		s += fmt.Sprintf(" (%d rounds are no measurement)", rounds)
	}
	return s
}

// compared is one kind of traffic in the course of the measurement.
type compared struct {
	traffic
	worker string       // where rxe's runs; "" if it was not asked, or there is none
	values [3][]float64 // ours, perftest, perftest again
}

func (c *compared) row() trafficRow {
	r := trafficRow{Through: c.through, Op: c.op, What: "rate", Size: c.size, Batch: c.batch, Count: c.count, Worker: c.worker}
	if c.latency {
		r.What = "latency"
	}
	var ours, noise []float64
	for i := range c.values[0] {
		ours = append(ours, c.values[0][i]/c.values[1][i])
		noise = append(noise, c.values[2][i]/c.values[1][i])
	}
	r.Ratio, r.Noise = newRatio(ours), newRatio(noise)
	r.Ours, r.Perftest = newRatio(c.values[0]).Median, newRatio(c.values[1]).Median
	r.judge()
	return r
}

// benchTraffic compares ibvfd, or the Endpoint above it, with perftest: the same
// messages on the same device, as many under way, posted and signalled alike, both
// polling. It stops after the rounds or when the time is up, whichever is first. The
// exit status is returned.
func benchTraffic(ctx context.Context, opt options, ops, what []string, budget time.Duration, asJSON bool) int {
	rows, err := compareTraffic(ctx, opt, ops, what, budget)
	return report(asJSON, "bench-traffic/v1", rows, printTraffic, err)
}

func printTraffic(to io.Writer, rows []trafficRow) {
	if counted {
		fmt.Fprintln(to, "time is "+unit())
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "through\top\t\tsize\tours\tperftest\tours/perftest (p10-p90)\tperftest/itself, the noise\trounds\tlimit kept")
	for _, r := range rows {
		unit, what := "/s", r.What
		if r.What == "latency" {
			unit = " us"
		}
		if r.Worker != "" {
			what += ", rxe's worker " + r.Worker
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.1f%s\t%.1f%s\t%v\t%v\t%d\t%s\n",
			r.Through, r.Op, what, r.Size, r.Ours, unit, r.Perftest, unit, r.Ratio, r.Noise, r.Ratio.Rounds, r.Verdict)
	}
	_ = w.Flush()
}

func compareTraffic(ctx context.Context, opt options, ops, what []string, budget time.Duration) (rows []trafficRow, err error) {
	end := time.Now().Add(budget)
	kinds, err := trafficKinds(opt, ops, what)
	if err != nil {
		return nil, err
	}
	measure := func(c *compared, who int) (float64, error) {
		trafficPort = portAfter(trafficPort)
		run := func() (float64, error) {
			if who == 0 {
				return sideOf(ctx, opt.device, c.traffic, trafficPort)
			}
			return perftestOf(ctx, opt.device, c.traffic, trafficPort)
		}
		if c.worker == workerBeside {
			return besideClient(run)
		}
		return run()
	}
	for _, c := range kinds {
		if err := c.calibrate(opt.slice, measure); err != nil {
			return nil, err
		}
	}
	for round := range opt.rounds {
		for _, c := range kinds {
			var v [3]float64
			for i := range v {
				if ctx.Err() != nil || time.Now().After(end) {
					err = ctx.Err()
					break
				}
				who := (i + round) % len(v)
				if v[who], err = measure(c, who); err != nil {
					break
				}
			}
			if slices.Contains(v[:], 0) {
				break
			}
			for i := range v {
				c.values[i] = append(c.values[i], v[i])
			}
		}
		if err != nil || time.Now().After(end) {
			break
		}
	}
	for _, c := range kinds {
		if len(c.values[0]) > 0 {
			rows = append(rows, c.row())
		}
	}
	if err == nil && len(rows) == 0 {
		err = errors.New("the time was up before the first round: give a larger -budget")
	}
	return rows, err
}

const trafficPortFirst = 18600

var trafficPort = trafficPortFirst

// portAfter returns the next port: one that another run has just had may not be free.
func portAfter(port int) int { return trafficPortFirst + (port-trafficPortFirst+1)%1000 }

// trafficSizes are the sizes of messages unless -sizes says others, from a cache line to a
// message of many packets. Latencies are then measured up to mostLatencySize: programs
// seldom wait for large messages one by one.
var trafficSizes = []int64{64, 4 << 10, 64 << 10, 4 << 20}

const mostLatencySize = 4 << 10

// everySize is what "-sizes all" stands for: the powers of two between the same
// ends.
func everySize() (list []int64) {
	for size := trafficSizes[0]; size <= trafficSizes[len(trafficSizes)-1]; size *= 2 {
		list = append(list, size)
	}
	return list
}

// trafficKinds are the kinds of traffic between two ends on the device.
func trafficKinds(opt options, ops, what []string) (list []*compared, err error) {
	c, err := ibvfd.Open(opt.device)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	gid, _, err := c.ChooseGID(1, gid.Wish{})
	if err != nil {
		return nil, err
	}
	port, err := c.QueryPort(1)
	if err != nil {
		return nil, err
	}
	list, err = kindsOf(traffic{through: opt.through, gid: gid.Index, mtu: port.MTU, reads: trafficReads}, opt, ops, what)
	if !counted {
		if c.Info().Kind == "rxe" {
			list = placed(list, workersMovable())
		}
		return list, err
	}
	list = slices.DeleteFunc(list, func(c *compared) bool {
		if c.passive() {
			return false
		}
		fmt.Fprintf(os.Stderr, "bench: %s left out: both sides poll, and where instructions are counted processors take turns: a side's wait for its turn would be measured\n", c.traffic)
		return true
	})
	if err == nil && len(list) == 0 {
		err = errors.New("nothing that was asked for can be counted: what can are READs, and the rate of WRITEs")
	}
	return list, err
}

// placed has the latency of READs over rxe twice, the second time with the kernel's worker
// beside the client, unless cannot says why it cannot be there. Elsewhere the worker falls asleep
// after a completion, about when a client posts its next READ. A client that posts earlier saves
// a third of the latency: docs/explanation/benchmarks.md.
func placed(list []*compared, cannot error) (all []*compared) {
	for _, c := range list {
		all = append(all, c)
		if c.op != "read" || !c.latency {
			continue
		}
		if cannot != nil {
			fmt.Fprintf(os.Stderr, "bench: %s with rxe's worker beside the client left out: %v\n", c.traffic, cannot)
			continue
		}
		c.worker = workerAnywhere
		all = append(all, &compared{traffic: c.traffic, worker: workerBeside})
	}
	return all
}

// kindsOf returns the comparisons that the flags ask for: rates at all sizes, and latencies.
func kindsOf(on traffic, opt options, ops, what []string) (list []*compared, err error) {
	through := []string{throughIbvfd, throughEndpoint, throughFabric}
	if !slices.Contains(through, on.through) {
		return nil, fmt.Errorf("-through %s: there are %s", on.through, strings.Join(through, ", "))
	}
	for _, w := range what {
		latency := w == "latency"
		if !latency && w != "rate" {
			return nil, fmt.Errorf("-what %s: there are rate and latency", w)
		}
		for _, op := range ops {
			if _, known := opcodes[op]; !known {
				return nil, fmt.Errorf("-ops %s: there are write, read and send", op)
			}
			if op == "send" && on.through == throughFabric {
				fmt.Fprintln(os.Stderr, "bench: sends left out: package gpurdma copies messages to and from memory of its own, which perftest does not")
				continue
			}
			for _, size := range opt.sizes {
				t := on
				t.op, t.latency, t.size, t.depth, t.batch = op, latency, int(size), trafficDepth, 16
				if size > 64<<10 {
					t.batch = 1 // so that a turn need not be long
				}
				if latency {
					t.batch, t.depth = 1, 1
				}
				if !latency || opt.chosen || size <= mostLatencySize {
					list = append(list, &compared{traffic: t})
				}
			}
		}
	}
	return list, nil
}

// calibrate chooses how many messages fill a turn.
func (c *compared) calibrate(turn time.Duration, measure func(*compared, int) (float64, error)) error {
	const least, most = 8, 100_000 // perftest wants 5
	fit := func(n int) { c.count = max(min(n, most)/c.batch*c.batch, c.batch, least) }
	fit(min(1<<22/c.size, 512)) // few, and enough to go by
	v, err := measure(c, 1)
	if err != nil {
		return err
	}
	each := 1 / v
	if c.latency {
		each = v * 1e-6
		if c.op != "read" {
			each *= 2
		}
	}
	fit(int(turn.Seconds() / each))
	return nil
}
