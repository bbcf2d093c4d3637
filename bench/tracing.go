// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/trace"
)

// tracingRow is what tracing adds to registering and deregistering one buffer,
// which reg-loop does.
type tracingRow struct {
	Exporter string        `json:"exporter"`
	Size     int64         `json:"size_bytes"`
	Entries  int           `json:"entries"` // of the scatter list
	Ranges   int           `json:"ranges"`  // that they make: how scattered the pages are
	Untraced time.Duration `json:"untraced_p50_ns"`
	Added    time.Duration `json:"added_ns"`          // by our tracing, the median over the rounds
	BPFAdded time.Duration `json:"bpftrace_added_ns"` // by the script; 0: not compared
	// Ratios within a round.
	Traced  ratio  `json:"traced_over_untraced"`
	LeftOut ratio  `json:"left_out_over_untraced"` // a process that the filter leaves out
	Noise   ratio  `json:"untraced_over_untraced"`
	OverBPF *ratio `json:"added_over_bpftrace_added,omitempty"`
}

// tracingResult is the document of -only tracing.
type tracingResult struct {
	Schema string        `json:"schema"`
	Rows   []tracingRow  `json:"rows"`
	Start  time.Duration `json:"start_p50_ns"` // of trace.Open, without an inventory
	Starts int           `json:"starts"`
	Cost   *tracingCost  `json:"records"`
}

// tracingCases are scatter lists of 64 and 16384 entries: udmabuf has one for
// each page up to 6.12 (7.2 makes one of neighbours: see Entries). The script reads
// 64 entries at most, so it is compared with the short one.
var tracingCases = []struct {
	entries int64
	script  bool
}{{64, true}, {16384, false}}

// tracing is one run of this benchmark.
type tracing struct {
	options
	script *script // nil: bpftrace is not installed
	starts samples
}

// noBPFTrace is the exit status where there is nothing to compare with, as the
// testbed's for what cannot be had.
const noBPFTrace = 77

// benchTracing measures, prints, and returns the exit status.
func benchTracing(ctx context.Context, opt options, records int, asJSON bool) int {
	b := tracing{options: opt}
	var missing error
	b.script, missing = newScript(opt.lists)
	r := tracingResult{Schema: "bench-tracing/v1", Rows: []tracingRow{}}
	failed := b.run(ctx, &r, records)
	r.Start, _ = b.starts.quantiles()
	r.Starts = len(b.starts.all)
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		_ = e.Encode(r)
	} else {
		r.print()
	}
	switch {
	case failed != nil:
		fmt.Fprintln(os.Stderr, "bench:", failed)
		return 1
	case missing != nil:
		fmt.Fprintln(os.Stderr, "bench: not compared with a bpftrace script:", missing)
		return noBPFTrace
	}
	return 0
}

func (b *tracing) run(ctx context.Context, r *tracingResult, records int) error {
	for _, c := range tracingCases {
		row, err := b.compare(ctx, "udmabuf", c.entries*int64(os.Getpagesize()), c.script)
		if row.Traced.Rounds > 0 {
			r.Rows = append(r.Rows, row)
		}
		if err != nil {
			return fmt.Errorf("%d entries: %w", c.entries, err)
		}
	}
	if records == 0 {
		return nil
	}
	cost, err := b.cost(ctx, records)
	r.Cost = cost
	return err
}

// loop is a reg-loop with a buffer of its own.
type loop struct {
	*peer
	pid int
	buf *gpualloc.Buffer
}

func (l *loop) close() {
	_ = l.peer.close()
	_ = l.buf.Close()
}

func (b *tracing) startLoop(ctx context.Context, spec string, size int64) (*loop, error) {
	alloc, err := openAllocator(spec, size)
	if err != nil {
		return nil, err
	}
	defer alloc.Close()
	buf, err := alloc.Alloc(ctx, size, gpualloc.Options{Name: "bench"})
	if err != nil {
		return nil, err
	}
	file, err := duplicate(buf)
	if err != nil {
		return nil, errors.Join(err, buf.Close())
	}
	defer file.Close()
	p, err := startPeer("reg-loop", []*os.File{file}, []string{b.device, strconv.FormatInt(size, 10)})
	if err != nil {
		return nil, errors.Join(err, buf.Close())
	}
	return &loop{p, p.cmd.Process.Pid, buf}, nil
}

// turns are the medians of one round.
type turns struct {
	untraced, again, other     time.Duration // nothing is attached
	traced, leftOut, bpftraced time.Duration
}

// compare alternates between no tracing, ours and the script's. Within a round the same
// process registers the same buffer under each. A second process, which the filter leaves
// out, has a buffer of its own: the tracer reports every attachment to a buffer that it
// follows.
func (b *tracing) compare(ctx context.Context, spec string, size int64, withScript bool) (tracingRow, error) {
	row := tracingRow{Exporter: spec, Size: size}
	one, err := b.startLoop(ctx, spec, size)
	if err != nil {
		return row, err
	}
	defer one.close()
	other, err := b.startLoop(ctx, spec, size)
	if err != nil {
		return row, err
	}
	defer other.close()
	n, err := slicePasses(b.slice, one.run)
	if err != nil {
		return row, err
	}
	if _, err := slicePasses(b.slice, other.run); err != nil { // its warm-up
		return row, err
	}

	var r rounds
	for round := range b.rounds {
		var t turns
		if err := b.round(ctx, round, &t, &r.untraced, &row, one, other, n, withScript && b.script != nil); err != nil {
			// The rounds before this one are valid; ratio says how many they are.
			return r.sum(row), fmt.Errorf("round %d: %w", round, err)
		}
		r.add(t)
	}
	return r.sum(row), nil
}

// round takes the turns. Each round begins with the next side, so that a drift of the
// machine does not favour one.
func (b *tracing) round(ctx context.Context, round int, t *turns, untraced *samples, row *tracingRow, one, other *loop, n int, withScript bool) error {
	blocks := []func() error{
		func() error { return b.untracedTurn(t, untraced, one, other, n) },
		func() error { return b.tracedTurn(ctx, t, row, one, other, n) },
	}
	if withScript {
		blocks = append(blocks, func() error { return b.scriptTurn(ctx, t, one, n) })
	}
	for i := range blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := blocks[(i+round)%len(blocks)](); err != nil {
			return err
		}
	}
	return nil
}

// rounds collects what each round showed.
type rounds struct {
	untraced                     samples
	added, scripted              []time.Duration
	traced, leftOut, noise, over []float64
}

func (r *rounds) add(t turns) {
	r.added = append(r.added, t.traced-t.untraced)
	r.traced = append(r.traced, float64(t.traced)/float64(t.untraced))
	r.leftOut = append(r.leftOut, float64(t.leftOut)/float64(t.other))
	r.noise = append(r.noise, float64(t.again)/float64(t.untraced))
	if t.bpftraced != 0 {
		r.scripted = append(r.scripted, t.bpftraced-t.untraced)
		r.over = append(r.over, float64(t.traced-t.untraced)/float64(t.bpftraced-t.untraced))
	}
}

func (r *rounds) sum(row tracingRow) tracingRow {
	row.Untraced, _ = r.untraced.quantiles()
	row.Added = median(r.added)
	row.Traced, row.LeftOut, row.Noise = newRatio(r.traced), newRatio(r.leftOut), newRatio(r.noise)
	if len(r.over) > 0 {
		over := newRatio(r.over)
		row.BPFAdded, row.OverBPF = median(r.scripted), &over
	}
	return row
}

func median(list []time.Duration) time.Duration {
	var s samples
	return s.add(list)
}

// turn is the median of a process's turn.
func turn(l *loop, n int, all *samples) (time.Duration, error) {
	ns, err := l.run(n)
	return all.add(ns), err
}

func (b *tracing) untracedTurn(t *turns, all *samples, one, other *loop, n int) error {
	var err1, err2, err3 error
	t.untraced, err1 = turn(one, n, all)
	t.other, err2 = turn(other, n, new(samples))
	t.again, err3 = turn(one, n, new(samples))
	return errors.Join(err1, err2, err3)
}

// tracedTurn also says how many entries the buffer's list has, and ranges.
func (b *tracing) tracedTurn(ctx context.Context, t *turns, row *tracingRow, one, other *loop, n int) error {
	begun := clock()
	tr, err := trace.Open(trace.Config{PIDs: []int{one.pid}, RDMAOnly: true, NoInventory: true})
	if err != nil {
		return err
	}
	b.starts.add([]time.Duration{clock() - begun})
	w := watchTracer(tr)
	_, warm := one.run(warmPasses)
	var err1, err2 error
	t.traced, err1 = turn(one, n, new(samples))
	t.leftOut, err2 = turn(other, n, new(samples))
	err = w.end(ctx, n+warmPasses)
	row.Entries, row.Ranges = w.entries, w.ranges
	return errors.Join(warm, err1, err2, err)
}

// warmPasses come before a turn under another tracing: the first ones meet code
// that has just been patched.
const warmPasses = 20

// watched reads a tracer as a program would.
type watched struct {
	tr      *trace.Tracer
	seen    atomic.Int64
	entries int
	ranges  int
	done    chan struct{}
}

func watchTracer(tr *trace.Tracer) *watched {
	w := &watched{tr: tr, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for e := range tr.Events(context.Background()) {
			if e.Kind == trace.Registered {
				w.entries, w.ranges = e.Record.Entries, e.Record.Ranges
				w.seen.Add(1)
			}
		}
	}()
	return w
}

// await returns when the tracer has seen n registrations.
func (w *watched) await(ctx context.Context, n int) error {
	const within = 30 * time.Second
	for end := time.Now().Add(within); w.seen.Load() < int64(n); time.Sleep(time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d registrations were seen in %v (%v)", w.seen.Load(), n, within, w.tr.Loss())
		}
	}
	return nil
}

// end closes the tracer. A registration that the tracer missed would make it look
// cheaper, so it must have seen want registrations, and lost no event.
func (w *watched) end(ctx context.Context, want int) error {
	flushed := w.tr.Flush(ctx)
	loss := w.tr.Loss()
	err := w.tr.Close() // what waits is handed out first
	<-w.done
	if flushed != nil || err != nil {
		return errors.Join(flushed, err)
	}
	if seen := w.seen.Load(); seen != int64(want) || loss.Any() {
		return fmt.Errorf("%d of %d registrations were seen (%v)", seen, want, loss)
	}
	return nil
}

func (r *tracingResult) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Printf("register + deregister, traced against untraced, by %s\n", unit())
	fmt.Fprintln(w, "entries\tranges\tsize\trounds\tuntraced\tadded\ttraced/untraced\tleft out/untraced\tuntraced/untraced\tadded by bpftrace\tours/its")
	for _, row := range r.Rows {
		script, over := "-", "-"
		if row.OverBPF != nil {
			script, over = row.BPFAdded.String(), row.OverBPF.String()
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%v\t%v\t%v\t%v\t%v\t%s\t%s\n",
			row.Entries, row.Ranges, row.Size, row.Traced.Rounds, row.Untraced, row.Added, row.Traced, row.LeftOut, row.Noise, script, over)
	}
	w.Flush()
	fmt.Printf("start of the tracer: %v (median of %d)\n", r.Start, r.Starts)
	if c := r.Cost; c != nil {
		fmt.Printf("%d records: %v of CPU in the tracing process, %d KiB resident at most, %d KiB of kernel maps\n",
			c.Records, c.CPU.Round(time.Millisecond), c.Resident>>10, c.Maps>>10)
	}
}
