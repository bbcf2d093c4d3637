// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// scaleRow is what something costs an endpoint with that many peers, beside one with a single peer.
type scaleRow struct {
	What  string        `json:"what"`
	Peers int           `json:"peers"`
	Cost  time.Duration `json:"cost_ns"` // median; on a machine that counts, thousands of instructions as microseconds
	Ratio ratio         `json:"ratio"`   // to the endpoint with one peer
}

// scalePeers are the endpoints that are compared, by their peers.
var scalePeers = []int{1, 8, 32, 64}

// scaleTimes is how often something is done in a turn.
const scaleTimes = 20

// scaleSleep is how long Wait sleeps for nothing.
const scaleSleep = 5 * time.Millisecond

// crowd is an endpoint with peers, all on one NIC and in this process.
type crowd struct {
	nic      *memory.NIC
	a, b     *engine.Endpoint
	mine     *memory.Buffer
	theirs   *memory.Buffer
	to       memory.RemoteSpan
	first    operation.Peer
	complete []operation.Completion
}

func newCrowd(ctx context.Context, nic *memory.NIC, peers int) (c *crowd, err error) {
	c = &crowd{nic: nic, complete: make([]operation.Completion, 16)}
	opt := engine.EndpointOptions{MaxPeers: scalePeers[len(scalePeers)-1], Depth: 16, RecvDepth: 1, SendDepth: 16}
	if c.a, err = engine.NewEndpoint(nic, opt); err != nil {
		return c, err
	}
	if c.b, err = engine.NewEndpoint(nic, opt); err != nil {
		return c, err
	}
	if c.mine, err = nic.AllocHost(64); err != nil {
		return c, err
	}
	if c.theirs, err = nic.AllocHost(64); err != nil {
		return c, err
	}
	addr, err := c.b.Listen("127.0.0.1:0")
	if err != nil {
		return c, err
	}
	for range peers {
		p, err := c.a.Connect(ctx, addr.String())
		if err != nil {
			return c, err
		}
		back, err := c.b.Accept(ctx)
		if err != nil {
			return c, err
		}
		if c.first != 0 {
			continue
		}
		c.first = p
		rb, err := c.b.Share(back, c.theirs.All(), ibvfd.AccessRemoteWrite)
		if err != nil {
			return c, err
		}
		if err := c.b.Offer(ctx, back, rb); err != nil {
			return c, err
		}
		if rb, err = c.a.Offered(ctx, p); err != nil {
			return c, err
		}
		c.to = rb.All()
	}
	return c, nil
}

func (c *crowd) close() error {
	var errs []error
	for _, e := range []*engine.Endpoint{c.a, c.b} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	for _, b := range []*memory.Buffer{c.mine, c.theirs} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	return errors.Join(errs...)
}

// write posts a write alone, and polls until it has completed.
func (c *crowd) write(context.Context) error {
	if err := c.a.Write(c.mine.All(), c.first, c.to, nil); err != nil {
		return err
	}
	for {
		n, err := c.a.Poll(c.complete)
		if err != nil || n == 0 {
			if err != nil {
				return err
			}
			continue
		}
		return c.complete[0].Err
	}
}

// poll finds nothing.
func (c *crowd) poll(context.Context) error {
	_, err := c.a.Poll(c.complete)
	return err
}

// sleep waits for nothing.
func (c *crowd) sleep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scaleSleep)
	defer cancel()
	if _, err := c.a.Wait(ctx, c.complete); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("waiting for nothing: %w", err)
	}
	return nil
}

// scaleTests are the operations that are measured. With cpu set the processor time counts,
// as the operation sleeps.
var scaleTests = []struct {
	what  string
	cpu   bool
	times int
	do    func(*crowd, context.Context) error
}{
	{"a 64-byte write, posted and polled alone", false, scaleTimes, (*crowd).write},
	{"Poll that finds nothing", false, scaleTimes, (*crowd).poll},
	{"Wait that sleeps 5 ms", true, 3, (*crowd).sleep},
}

// processorTime is what this process has had.
func processorTime() (time.Duration, error) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0, err
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
}

// turn is what one call costs, on average over a turn.
func (c *crowd) turn(ctx context.Context, times int, cpu bool, do func(*crowd, context.Context) error) (time.Duration, error) {
	began, err := processorTime()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	for range times {
		if err := do(c, ctx); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)
	if cpu {
		end, err := processorTime()
		if err != nil {
			return 0, err
		}
		took = end - began
	}
	return took / time.Duration(times), nil
}

// compareScale measures endpoints with few and with many peers, in turn.
func compareScale(ctx context.Context, opt options) (rows []scaleRow, err error) {
	nic, err := memory.OpenNIC(opt.device, memory.NICOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, nic.Close()) }()
	var crowds []*crowd
	defer func() {
		for _, c := range crowds {
			err = errors.Join(err, c.close())
		}
	}()
	for _, n := range scalePeers {
		c, err := newCrowd(ctx, nic, n)
		crowds = append(crowds, c)
		if err != nil {
			return nil, err
		}
	}
	for _, test := range scaleTests {
		costs := make([]samples, len(crowds))
		ratios := make([][]float64, len(crowds))
		for round := range opt.rounds + 1 {
			var one time.Duration
			for i, c := range crowds {
				took, err := c.turn(ctx, test.times, test.cpu, test.do)
				if err != nil {
					return nil, fmt.Errorf("%s, %d peers: %w", test.what, scalePeers[i], err)
				}
				if i == 0 {
					one = took
				}
				if round > 0 { // the first round warms up
					costs[i].add([]time.Duration{took})
					ratios[i] = append(ratios[i], float64(took)/float64(max(one, 1)))
				}
			}
		}
		for i, n := range scalePeers {
			cost, _ := costs[i].quantiles()
			rows = append(rows, scaleRow{test.what, n, cost, newRatio(ratios[i])})
		}
	}
	return rows, nil
}

// benchScale prints what more peers cost.
func benchScale(ctx context.Context, opt options, asJSON bool) int {
	rows, err := compareScale(ctx, opt)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	if asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(rows); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
		return 0
	}
	unit := "us"
	if counted {
		unit = "thousand instructions"
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "what\tpeers\t%s\tto one peer (p10-p90)\n", unit)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%.1f\t%v\n", r.What, r.Peers, float64(r.Cost.Nanoseconds())/1000, r.Ratio)
	}
	_ = w.Flush()
	return 0
}
