// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// The front door over several NICs, beside UCX: the sender moves messages of one size to the receiver,
// which takes note of each. Ours are writes with a notification, UCX's are tagged messages by its rendezvous
// protocol, both with the same number under way.

// railsRow is the comparison of one number of rails.
type railsRow struct {
	Rails   int     `json:"rails"`
	Size    int     `json:"size_bytes"`
	Count   int     `json:"messages"`  // in a turn
	Waits   string  `json:"ucx_waits"` // how UCX waits: "poll" or "sleep", whichever is faster
	Ours    float64 `json:"ours"`      // bytes a second, the median
	UCX     float64 `json:"ucx"`
	Ratio   ratio   `json:"ours_over_ucx"`
	Noise   ratio   `json:"ucx_over_itself"`
	Verdict string  `json:"verdict"`
}

// railsRun is a run over a number of rails.
type railsRun struct {
	size, count, window int
	server, client      []string // NICs
	waits               string
	port                int
}

const (
	railsWindow = 2       // messages under way
	railsSize   = 1 << 20 // of a message, unless -sizes says another
	railsWarm   = 12      // messages before the measurement
	leastRails  = 1.0
)

// benchRails compares transfers over 1, 2 and 4 NICs with ucx_perftest. It makes the NICs. The exit
// status is returned.
func benchRails(ctx context.Context, opt options, asJSON bool) int {
	rows, err := compareRails(ctx, opt)
	return report(asJSON, "bench-rails/v1", rows, printRails, err)
}

func printRails(to io.Writer, rows []railsRow) {
	if counted {
		fmt.Fprintln(to, "time is "+unit())
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "rails\tsize\tmessages\tours MiB/s\tUCX MiB/s\tours/UCX (p10-p90)\tUCX/itself, the noise\trounds\tUCX waits\tlimit kept")
	for _, r := range rows {
		fmt.Fprintf(w, "%d\t%d\t%d\t%.2f\t%.2f\t%v\t%v\t%d\t%s\t%s\n", r.Rails, r.Size, r.Count, r.Ours/(1<<20), r.UCX/(1<<20), r.Ratio, r.Noise, r.Ratio.Rounds, r.Waits, r.Verdict)
	}
	_ = w.Flush()
}

func compareRails(ctx context.Context, opt options) (rows []railsRow, err error) {
	if _, err := exec.LookPath("ucx_perftest"); err != nil {
		return nil, fmt.Errorf("%w: Debian has it in the package ucx-utils", err)
	}
	const most = 4
	nics, remove, err := addCables(most)
	defer func() { err = errors.Join(err, remove()) }()
	if err != nil {
		return nil, err
	}
	size := railsSize
	if opt.chosen {
		size = int(opt.sizes[0])
	}
	for _, n := range []int{1, 2, most} {
		r := railsRun{size: size, window: railsWindow, server: nics[1][:n], client: nics[0][:n], port: trafficPortFirst}
		row, err := r.compare(ctx, opt)
		if err != nil {
			return rows, fmt.Errorf("%d rails: %w", n, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// compare measures in turns: ours, UCX, and UCX again.
func (r railsRun) compare(ctx context.Context, opt options) (row railsRow, err error) {
	if err := r.calibrate(ctx, opt.slice); err != nil {
		return row, err
	}
	var values [3][]float64
	for round := range opt.rounds {
		for i := range values {
			who := (i + round) % len(values)
			run := r.ucx
			if who == 0 {
				run = r.ours
			}
			r.port = portAfter(r.port)
			v, err := run(ctx)
			if err != nil {
				return row, err
			}
			values[who] = append(values[who], v)
		}
	}
	var ours, noise []float64
	for i := range values[0] {
		ours = append(ours, values[0][i]/values[1][i])
		noise = append(noise, values[2][i]/values[1][i])
	}
	row = railsRow{
		Rails: len(r.client), Size: r.size, Count: r.count, Waits: r.waits, Ours: newRatio(values[0]).Median, UCX: newRatio(values[1]).Median,
		Ratio: newRatio(ours), Noise: newRatio(noise),
	}
	row.judge()
	return row, nil
}

// judge says whether the limit is kept. Within what UCX shows against itself there is no difference.
func (r *railsRow) judge() {
	r.Verdict = verdict(r.Ratio.Median >= leastRails, r.Ratio.Median >= r.Noise.P10, r.Ratio.Rounds)
}

// calibrate chooses how UCX waits, and how many messages fill a turn.
func (r *railsRun) calibrate(ctx context.Context, turn time.Duration) error {
	const least = 2 * railsWindow
	r.count = least
	best := 0.0
	for _, waits := range []string{"poll", "sleep"} {
		try := *r
		try.waits = waits
		try.port = trafficPortFirst + len(waits)
		v, err := try.ucx(ctx)
		if err != nil {
			return err
		}
		if v > best {
			best, r.waits = v, waits
		}
	}
	r.count = max(least, int(turn.Seconds()*best/float64(r.size)))
	return nil
}

// ucx runs ucx_perftest, and returns bytes a second.
func (r railsRun) ucx(ctx context.Context) (float64, error) {
	args := []string{
		"-t", "tag_bw", "-s", strconv.Itoa(r.size), "-n", strconv.Itoa(r.count), "-w", strconv.Itoa(railsWarm), "-O", strconv.Itoa(r.window),
		"-E", r.waits, "-p", strconv.Itoa(r.port), "-f", "-v",
	}
	out, err := bothSidesIn(ctx, "ucx_perftest", r.port, args, func(client bool) []string {
		nics := r.server
		if client {
			nics = r.client
		}
		var devices []string
		for _, nic := range nics {
			devices = append(devices, nic+":1")
		}
		rails := strconv.Itoa(len(nics))
		return []string{
			// The first GID: UCX takes datagrams over rxe with an IPv4 GID for those of others.
			"UCX_TLS=rc_verbs,ud_verbs:aux", "UCX_IB_GID_INDEX=0", "UCX_NET_DEVICES=" + strings.Join(devices, ","),
			"UCX_MAX_RNDV_RAILS=" + rails, "UCX_MAX_EAGER_RAILS=1",
		}
	})
	if err != nil {
		return 0, err
	}
	return readUCX(out, r.size)
}

// readUCX finds the result in the lines of comma-separated values: the average time of a message over the
// whole run, in microseconds.
func readUCX(out string, size int) (float64, error) {
	head, column := -1, -1
	lines := strings.Split(out, "\n")
	for i, l := range lines {
		f, _ := csv.NewReader(strings.NewReader(l)).Read()
		if column = slices.Index(f, "overall_lat"); column >= 0 {
			head = i
			break
		}
	}
	if head < 0 {
		return 0, fmt.Errorf("no column overall_lat in %q", out)
	}
	for i := len(lines) - 1; i > head; i-- {
		f := strings.Split(strings.TrimSpace(lines[i]), ",")
		if len(f) <= column {
			continue
		}
		v, err := strconv.ParseFloat(f[column], 64)
		if err == nil && v <= 0 {
			err = errors.New("nothing was measured")
		}
		return float64(size) / v * 1e6, err
	}
	return 0, fmt.Errorf("no result in %q", out)
}
