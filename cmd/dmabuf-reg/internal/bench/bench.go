// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/options"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/operation"
)

type params struct {
	station.Flags
	addr         string
	ops, sizes   []string
	kinds        []string
	depth, batch int
	rounds       int
	slice        time.Duration
	csv, svg     string
	html         string
	plot         bool
	flap         bool
	cuts         int
	seed         uint64

	work  []talk.Op
	bytes []int64
}

// kinds are the kinds of memory on this side that are compared.
var kinds = []string{station.PathDirect, station.PathStaged, station.Host}

const (
	maxSlice   = 100 * time.Millisecond
	fairRounds = 30
)

// Result is what `bench` measured.
type Result struct {
	Begun  time.Time    `json:"begun"`  // when the measurement began
	Kernel string       `json:"kernel"` // this machine's kernel and architecture
	Server string       `json:"server"` // the address of the server
	Local  station.Side `json:"local"`  // this side
	Remote peer.Server  `json:"remote"` // the server's side
	// Over is what the connection goes over: the first of the rails.
	Over     link.Way          `json:"over"`
	Rails    []link.Rail       `json:"rails"`     // the connection's rails at its end, one for each NIC
	Rounds   int               `json:"rounds"`    // the value of --rounds; 0 with --flap
	Slice    time.Duration     `json:"slice_ns"`  // the value of --slice; 0 with --flap
	Depth    int               `json:"depth"`     // the value of --depth: how many operations are under way
	Batch    int               `json:"batch"`     // how many operations are posted at once; 1 over several NICs
	NotTried []buffer.NotTried `json:"not_tried"` // the kinds of memory that this machine does not offer
	// Points has one entry for each operation, size and kind of memory on this side; none with --flap.
	Points []benchPoint `json:"points"`
	Flap   *FlapResult  `json:"flap"` // what --flap did, and what was lost; null without --flap

	plot *canvas // draws the curves of --plot; nil without
}

// benchPoint is one operation at one size with one kind of memory.
type benchPoint struct {
	Op   string `json:"op"`   // "write", "read", "send", "atomic"
	Size int64  `json:"size"` // the bytes of one operation
	// Kind is the kind of memory on this side: "direct" ("moved" where --trace saw that the bytes are
	// not in the GPU's memory), "staged", "host".
	Kind    string  `json:"kind"`
	Latency latency `json:"latency"` // the time of one operation at a time
	// Bandwidth is measured with --depth operations under way, of write and send no more than the
	// smaller buffer has room for.
	Bandwidth bandwidth `json:"bandwidth"`
	// StagedBytes were copied through this side's host memory while it was measured: 0 unless Kind is
	// "staged".
	StagedBytes int64 `json:"staged_bytes"`
}

// latency is of one operation at a time, from posting to completion.
type latency struct {
	Samples int           `json:"samples"` // how many operations were measured
	P25     time.Duration `json:"p25_ns"`  // the first quartile, as all quantiles to 1/32
	P50     time.Duration `json:"p50_ns"`  // the median
	P75     time.Duration `json:"p75_ns"`  // the third quartile
	P90     time.Duration `json:"p90_ns"`  // the 90th percentile
	P99     time.Duration `json:"p99_ns"`  // the 99th percentile
	P999    time.Duration `json:"p999_ns"` // the 99.9th percentile
	Max     time.Duration `json:"max_ns"`  // the longest time
	Ratio   spread        `json:"ratio"`   // the ratio of the rounds' medians to those of the first kind of memory
}

// bandwidth is of as many operations at a time as --depth says.
type bandwidth struct {
	Operations int    `json:"operations"`  // how many operations were measured
	Rate       spread `json:"bytes_per_s"` // the rate in bytes a second
	Ratio      spread `json:"ratio"`       // the ratio to the rate of the first kind of memory, round by round
}

// spread is the median of some numbers, and the quartiles between which half of them lie.
type spread struct {
	Median float64 `json:"median"` // the median over the rounds
	Low    float64 `json:"low"`    // the first quartile over the rounds
	High   float64 `json:"high"`   // the third quartile over the rounds
}

func spreadOf(list []float64) spread {
	if len(list) == 0 {
		return spread{}
	}
	s := slices.Sorted(slices.Values(list))
	at := func(of4 int) float64 {
		x := float64(of4*(len(s)-1)) / 4
		i := int(x)
		j := min(i+1, len(s)-1)
		return s[i] + (s[j]-s[i])*(x-float64(i))
	}
	return spread{Median: at(2), Low: at(1), High: at(3)}
}

// Command is `bench`.
func Command(a *app.App) *cobra.Command {
	var f params
	cmd := &cobra.Command{
		Use:   "bench ADDR",
		Short: "Measure latency and bandwidth to a `serve`: direct, staged and host memory side by side",
		Long: `Connect to a ` + "`dmabuf-reg serve`" + ` at ADDR (HOST:PORT) and measure write, read and
send at each size, with each kind of memory on this side: direct (registered
where it is), staged (copied through host memory, each time anew: the bytes have
changed since the last time), and host memory. The flags of the server choose the
memory of its side.

The kinds take turns in slices of time, --rounds times, so that other
work on the machine slows all of them alike. Shown are the medians, the quartiles, and
the median of the rounds' ratios to the first kind. Latency is that of one
operation at a time, from posting to completion; bandwidth has --depth
operations under way. The bytes are not verified without --flap: ` + "`connect`" + `
verifies them.

With --nic NAME,NAME the connection has a rail for each NIC, as the server must
have. A message is then copied, and one of more than 32 KiB is sent as several.

With --flap, links of these NICs are cut while write, read and send go on, and
every byte is verified: the NIC's network device is switched off, for up to 4 s,
and on again, by netlink. NICs are cut one at a time, at random times (--seed),
--cuts times, and only while another one has a link. Addresses, permanent
neighbours and routes that a device, and VLANs on it, lose are put back, after an
error and Ctrl-C, too. If one of the NICs cannot be cut, none is. If this program
is killed during a cut, ` + "`ip link set DEVICE up`" + ` mends it. The exit status is 0 if nothing was lost.`,
		Example: `  dmabuf-reg bench 10.0.0.1:7471 --plaintext --svg bench.svg
  dmabuf-reg bench 10.0.0.1:7471 --plaintext --html bench.html --plot
  dmabuf-reg bench 127.0.0.1:7471 --ops write --sizes 64,64KiB --depth 1 --json
  dmabuf-reg bench 10.0.0.1:7471 --nic mlx5_0,mlx5_1 --plaintext --flap`,
		Args: cli.Args("ADDR"),
	}
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.ops, "ops", []string{"write", "read", "send"}, "operations, comma separated: write, read, send")
	flags.StringSliceVar(&f.sizes, "sizes", []string{"64", "256", "1KiB", "4KiB", "16KiB", "64KiB", "256KiB", "1MiB", "4MiB"}, "sizes of one operation, comma separated")
	flags.StringSliceVar(&f.kinds, "kinds", kinds, "kinds of memory to compare, the first being what others are compared with: direct, staged, host")
	flags.IntVar(&f.depth, "depth", 64, "operations under way at a time, for bandwidth")
	flags.IntVar(&f.batch, "batch", 16, "operations that are posted to the NIC together, for bandwidth; no more than --depth unless given")
	flags.IntVar(&f.rounds, "rounds", fairRounds, "how often each kind has its turn; fewer than 30 say little")
	flags.DurationVar(&f.slice, "slice", 10*time.Millisecond, "how long a turn is, at most 100ms; one operation is always carried out")
	flags.StringVar(&f.csv, "csv", "", "write the results to FILE as comma separated values as well")
	flags.StringVar(&f.svg, "svg", "", "draw the results into FILE as well")
	flags.StringVar(&f.html, "html", "", "write the results to FILE as a page for a browser as well: curves, and all numbers; - writes it to the standard output, in place of the text")
	flags.BoolVar(&f.plot, "plot", false, "draw curves into the text")
	flags.BoolVar(&f.flap, "flap", false, "cut the links of the NICs that --nic names, one at a time, move and verify bytes meanwhile, and say what was lost (needs CAP_NET_ADMIN)")
	flags.IntVar(&f.cuts, "cuts", 8, "with --flap: how many cuts there are")
	flags.Uint64Var(&f.seed, "seed", 0, "with --flap: repeat a run's bytes, NICs and times (default: random; printed)")
	_ = cmd.MarkFlagFilename("csv", "csv")
	_ = cmd.MarkFlagFilename("svg", "svg")
	_ = cmd.MarkFlagFilename("html", "html")
	options.CompleteWords(cmd, "ops", "write", "read", "send")
	options.CompleteWords(cmd, "kinds", kinds...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.addr = args[0]
		if !flags.Changed("batch") {
			f.batch = min(f.batch, f.depth)
		}
		return a.Action(func(ctx context.Context) (app.Result, error) {
			if err := f.parse(); err != nil {
				return nil, &cli.UsageError{Err: err}
			}
			if err := f.CheckSeveral(f.addr); err != nil {
				return nil, err
			}
			if err := f.checkFlap(flags.Changed); err != nil {
				return nil, err
			}
			if a.JSON && (f.html == standard || f.plot) {
				return nil, &cli.UsageError{Err: errors.New("--json writes the standard output itself: leave out --plot, and give --html a file")}
			}
			return doBench(ctx, a, &f)
		})(cmd, nil)
	}
	return cmd
}

func (f *params) parse() (err error) {
	if err := station.CheckAddr(f.addr); err != nil {
		return err
	}
	for _, name := range f.ops {
		op, err := talk.ParseOp(strings.TrimSpace(name))
		if err == nil && op == talk.Atomic {
			err = errors.New("atomics have no bandwidth: name write, read or send")
		}
		if err != nil {
			return err
		}
		f.work = append(f.work, op)
	}
	for i, k := range f.kinds {
		f.kinds[i] = strings.TrimSpace(k)
		if !slices.Contains(kinds, f.kinds[i]) || slices.Contains(f.kinds[:i], f.kinds[i]) {
			return fmt.Errorf("--kinds: %q is no kind of memory, or is named twice; there are %s", k, strings.Join(kinds, ", "))
		}
	}
	if f.bytes, err = cli.ParseSizes(f.sizes); err != nil {
		return err
	}
	switch {
	case len(f.work) == 0 || len(f.kinds) == 0:
		return errors.New("--ops and --kinds must name some")
	case f.depth < 1 || f.depth > station.MaxAtOnce || f.batch < 1 || f.batch > f.depth:
		return fmt.Errorf("--depth must be 1 to %d, --batch 1 to the depth: depth %d, batch %d", station.MaxAtOnce, f.depth, f.batch)
	case f.rounds < 1 || f.slice <= 0 || f.slice > maxSlice:
		return fmt.Errorf("--rounds must be 1 or more, --slice more than 0 and at most %v: rounds %d, slice %v", maxSlice, f.rounds, f.slice)
	}
	return nil
}

func doBench(ctx context.Context, a *app.App, f *params) (r app.Result, err error) {
	csv, err := newOutput("the table", "--csv", f.csv)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, csv.drop()) }()
	svg, err := newOutput("the drawing", "--svg", f.svg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, svg.drop()) }()
	toOutput := f.html == standard
	if toOutput {
		f.html = ""
	}
	page, err := newOutput("the page", "--html", f.html)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, page.drop()) }()
	err = peer.Call(ctx, &f.Flags, f.addr, f.bytes, a.Tell, func(c *peer.Client) error {
		done := &Result{
			Begun: time.Now(), Kernel: kernel(),
			Server: f.addr, Local: c.Side, Remote: c.Server, Over: c.Way, Rounds: f.rounds, Slice: f.slice, Depth: f.depth, Batch: f.batch,
			Rails: []link.Rail{}, NotTried: []buffer.NotTried{}, Points: []benchPoint{},
		}
		r = done
		if f.plot {
			done.plot = newCanvas(a.Stdout)
		}
		defer func() { done.Rails = link.Rails(c.Link) }()
		if f.Several() {
			done.Batch = 1
		}
		if f.flap {
			done.Rounds, done.Slice = 0, 0
			return flapAll(ctx, a, f, c, done)
		}
		if err := measureAll(ctx, a, f, c, done); err != nil {
			return err
		}
		return errors.Join(c.Bye(ctx), csv.write(done.csv), svg.write(done.svg), page.write(func(w io.Writer) error { return done.WritePage(w, a.Version) }))
	})
	if done, ok := r.(*Result); ok && toOutput && err == nil {
		r = asPage{done, a.Version}
	}
	return r, err
}

// standard is the name of the standard output.
const standard = "-"

// asPage is a result whose text is the page.
type asPage struct {
	*Result
	version string
}

// Text implements app.Result.
func (p asPage) Text(w io.Writer) error { return p.WritePage(w, p.version) }

// kernel says what runs on this machine; "" if it does not say.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
}

func measureAll(ctx context.Context, a *app.App, f *params, c *peer.Client, r *Result) (err error) {
	m := &meter{Client: c, f: f, list: make([]operation.Completion, f.depth)}
	defer func() { err = errors.Join(err, m.close()) }()
	if err := m.open(ctx, r); err != nil {
		return errors.Join(err, c.Bye(ctx))
	}
	total := int64(len(f.work) * len(f.bytes))
	for _, op := range f.work {
		for _, size := range f.bytes {
			a.Progress.Draw(fmt.Sprintf("measuring %v of %s", op, bytesize.Format(size)), int64(len(r.Points)/len(m.turns)), total)
			points, err := m.measure(ctx, op, size)
			if err != nil {
				return &cli.On{Subject: fmt.Sprintf("%v of %s", op, bytesize.Format(size)), Err: err}
			}
			r.Points = append(r.Points, points...)
		}
	}
	return nil
}
