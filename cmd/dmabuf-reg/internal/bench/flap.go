// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/flap"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/trial"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
)

// FlapResult is what `bench --flap` did, and what was lost.
type FlapResult struct {
	Seed       uint64        `json:"seed"`           // the value of --seed that repeats the run
	Planned    int           `json:"planned"`        // the value of --cuts: how many cuts there were to be
	Cuts       []flap.Cut    `json:"cuts"`           // the cuts that were made
	Rows       []flapRow     `json:"rows"`           // one for each operation and size, with the sums over the run
	Elapsed    time.Duration `json:"elapsed_ns"`     // the time that all rows took
	Operations int64         `json:"operations"`     // how many operations the rows have
	Verified   int64         `json:"verified_bytes"` // the bytes that were compared and right
	// Failed is how many operations of any kind have failed, and rows that were not carried out.
	Failed   int64         `json:"failed"`
	Wrong    int64         `json:"wrong_bytes"`         // how many bytes were wrong
	Messages int64         `json:"messages"`            // how many messages this side has sent
	Lost     int64         `json:"messages_lost"`       // how many messages of both sides never came
	Twice    int64         `json:"messages_duplicated"` // how many messages of both sides came twice
	Pause    time.Duration `json:"longest_pause_ns"`    // the longest time without a completed byte while operations were under way
	// Nothing says that all cuts were made and all rails came back, and that Failed, Wrong, Lost and
	// Twice are 0.
	Nothing bool `json:"nothing_lost"`
}

// flapRow is the sum over all times that an operation of a size was carried out.
type flapRow struct {
	Op         string        `json:"op"`          // "write", "read", "send", "atomic"
	Size       int64         `json:"size"`        // the bytes of one operation
	Operations int64         `json:"operations"`  // how many operations were carried out
	Elapsed    time.Duration `json:"elapsed_ns"`  // the time that they took
	Rate       float64       `json:"bytes_per_s"` // the rate over that time
}

// checkFlap refuses flags that cannot be used with --flap, or need it.
func (f *params) checkFlap(changed func(string) bool) error {
	refuse := func(format string, args ...any) error { return &cli.UsageError{Err: fmt.Errorf(format, args...)} }
	if !f.flap {
		for _, name := range []string{"cuts", "seed"} {
			if changed(name) {
				return refuse("--%s is for --flap", name)
			}
		}
		if f.Several() && changed("batch") {
			return refuse("--batch is for one NIC: over several each operation is posted by itself")
		}
		return nil
	}
	for _, name := range []string{"kinds", "rounds", "slice", "batch", "csv", "svg", "html", "plot"} {
		if changed(name) {
			return refuse("--%s does not go with --flap, which compares bytes, and no kinds of memory", name)
		}
	}
	switch {
	case !f.Several():
		return refuse("--flap cuts the links of the NICs that --nic names, while another one carries on: name two or more, as --nic mlx5_0,mlx5_1")
	case f.cuts < 1:
		return refuse("--cuts must be 1 or more, not %d", f.cuts)
	}
	if !changed("seed") {
		f.seed = rand.Uint64()
	}
	return nil
}

// flapAll finds the links to cut, and moves bytes and verifies them while they are cut.
func flapAll(ctx context.Context, a *app.App, f *params, c *peer.Client, r *Result) (err error) {
	over, ok := c.Link.(*link.OverRails)
	if !ok {
		return errors.New("the connection has one rail")
	}
	r.Flap = &FlapResult{Seed: f.seed, Planned: f.cuts, Cuts: []flap.Cut{}, Rows: []flapRow{}}
	made, cancel := context.WithTimeout(ctx, f.Timeout)
	_ = over.AllUp(made) // FindCables says which rail was not made, and why
	cancel()
	states, err := over.Now()
	if err != nil {
		return err
	}
	cables, err := flap.FindCables(states, over.PeerAddr())
	if err != nil {
		return errors.Join(err, c.Bye(ctx))
	}
	defer func() { err = errors.Join(err, cables.Close()) }()
	var names []string
	for _, x := range cables.List {
		names = append(names, x.NIC+" (network device "+x.NetDev+")")
	}
	a.Tell("this cuts the links of %s: %s in all, one at a time, each for up to %v, and puts them back; other traffic of these devices stops meanwhile; seed %d",
		strings.Join(names, " and "), human.Plural(f.cuts, "cut"), flap.Downs[1], f.seed)
	fl := &flap.Flapper{Cables: cables.List, States: over.Now, Count: f.cuts, Limit: f.Timeout, Pause: flap.Pauses, Down: flap.Downs, Told: func(x flap.Cut) { a.Tell("%s", x.Text()) }}
	return flapOver(ctx, a, f, c, over, fl, r.Flap)
}

// moved is a connection that counts what has moved over it.
type moved interface {
	Restart()
	Counted() link.Counted
}

// flapOver moves bytes and verifies them while a flapper cuts links, and says goodbye.
func flapOver(ctx context.Context, a *app.App, f *params, c *peer.Client, over moved, fl *flap.Flapper, r *FlapResult) error {
	fl.Random = rand.New(rand.NewPCG(f.seed, 0))
	c.Depth = f.depth
	begun := time.Now()
	over.Restart()
	cutting, stop := context.WithCancel(ctx)
	defer stop()
	var cut error
	whole := make(chan struct{}) // closed when no link is cut any more
	go func() {
		defer close(whole)
		cut = fl.Run(cutting)
	}()
	moved := r.move(ctx, a, f, c, whole)
	stop()
	<-whole
	if moved != nil && errors.Is(cut, context.Canceled) { // because move has ended
		cut = nil
	}
	r.Elapsed, r.Cuts = time.Since(begun), append(r.Cuts, fl.Cuts...)
	if moved == nil {
		moved = r.goodbye(ctx, c)
	}
	n := over.Counted()
	r.Failed, r.Messages, r.Lost, r.Twice, r.Pause = r.Failed+n.Failed, n.Sent, r.Lost+n.Lost, r.Twice+n.Twice, n.Longest
	r.Nothing = moved == nil && cut == nil && r.losses() == nil
	return app.Ended(ctx, errors.Join(moved, cut, r.losses()))
}

// move carries out all operations again and again, and once more when all links are whole. Wrong bytes
// and operations that fail on the server's side are counted; any other error ends it.
func (r *FlapResult) move(ctx context.Context, a *app.App, f *params, c *peer.Client, whole <-chan struct{}) error {
	t := &trial.Trial{Client: c, Seed: f.seed}
	for last := false; ; {
		for _, op := range f.work {
			for _, size := range f.bytes {
				drawFlap(a, op, size)
				row, broken, err := t.Row(ctx, trial.Planned{Op: op, Direction: trial.Out, Size: size}, f.depth)
				if r.add(row, err); broken || ctx.Err() != nil {
					return err
				}
			}
		}
		if last {
			return nil
		}
		select {
		case <-whole:
			last = true
		default:
		}
	}
}

func drawFlap(a *app.App, op talk.Op, size int64) {
	if a.Progress != nil {
		a.Progress.Draw(fmt.Sprintf("links are cut under %v of %s", op, bytesize.Format(size)), 0, 1)
	}
}

// add adds what was carried out. It leaves out a row that was interrupted.
func (r *FlapResult) add(row trial.Row, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	i := slices.IndexFunc(r.Rows, func(x flapRow) bool { return x.Op == row.Op && x.Size == row.Size })
	if i < 0 {
		i = len(r.Rows)
		r.Rows = append(r.Rows, flapRow{Op: row.Op, Size: row.Size})
	}
	x := &r.Rows[i]
	var wrong *canary.Mismatch
	switch {
	case errors.As(err, &wrong):
		r.Wrong += wrong.Count
	case err != nil:
		r.Failed++
		return
	}
	x.Operations += int64(row.Count)
	x.Elapsed += row.Elapsed
	if x.Elapsed > 0 {
		x.Rate = float64(x.Size) * float64(x.Operations) / x.Elapsed.Seconds()
	}
	r.Operations += int64(row.Count)
	r.Verified += row.Verified
}

// goodbye gets from the server how many of this side's messages never came, and how many came twice.
func (r *FlapResult) goodbye(ctx context.Context, c *peer.Client) error {
	return c.Within(ctx, "say goodbye to "+c.Addr, func(ctx context.Context) error {
		a, err := c.Ask(ctx, talk.Request{Kind: talk.Bye})
		r.Lost, r.Twice = r.Lost+int64(a.Value), r.Twice+int64(a.Extra)
		return err
	})
}

// losses is the error of what was lost, nil if nothing was.
func (r *FlapResult) losses() error {
	if r.Failed+r.Wrong+r.Lost+r.Twice == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", trial.ErrWrong, r.sums())
}

func (r *FlapResult) sums() string {
	return fmt.Sprintf("%s failed, %s, %s lost, %s duplicated", human.Plural(int(r.Failed), "operation"), human.Plural(int(r.Wrong), "wrong byte"),
		human.Plural(int(r.Lost), "message"), human.Plural(int(r.Twice), "message"))
}

// Text implements app.Result.
func (r *FlapResult) Text(w io.Writer) error {
	rows := [][]string{{"OP", "SIZE", "OPERATIONS", "RATE"}}
	for _, x := range r.Rows {
		rows = append(rows, []string{x.Op, bytesize.Format(x.Size), strconv.FormatInt(x.Operations, 10), human.Rate(x.Rate)})
	}
	if err := app.Table(w, rows, nil, "nothing was carried out"); err != nil {
		return err
	}
	fmt.Fprintln(w)
	rows = [][]string{{"CUT", "NIC", "NETDEV", "AT", "FOR", "RAIL WAS BACK AFTER", "LOST LINKS"}}
	for i, x := range r.Cuts {
		back := human.Duration(x.Back)
		if x.Back == 0 {
			back = ""
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), x.NIC, x.NetDev, human.Duration(x.At), human.Duration(x.Down), back, strconv.Itoa(x.Lost)})
	}
	if err := app.Table(w, rows, nil, "no link was cut"); err != nil {
		return err
	}
	verdict := "FAIL: "
	switch {
	case r.Nothing:
		verdict = "PASS: nothing was lost: "
	case r.losses() == nil:
		verdict = "NO VERDICT: it did not come to its end: "
	}
	_, err := fmt.Fprintf(w, "\n%s, of %d planned, in %s; %d operations, %s compared and right, %d messages\nlongest pause without a completed byte: %s\nseed %d\n%s%s\n",
		human.Plural(len(r.Cuts), "cut"), r.Planned, human.Duration(r.Elapsed), r.Operations, app.Approximately(r.Verified), r.Messages, human.Duration(r.Pause), r.Seed, verdict, r.sums())
	return err
}
