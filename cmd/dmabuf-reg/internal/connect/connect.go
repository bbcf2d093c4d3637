// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/options"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/trial"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/bytesize"
)

type params struct {
	station.Flags
	addr  string
	ops   []string
	sizes []string
	both  bool
	watch bool
	count int
	seed  uint64

	work  []talk.Op
	bytes []int64
}

// Result is what `connect` did.
type Result struct {
	Server string       `json:"server"` // the address of the server
	Seed   uint64       `json:"seed"`   // the value of --seed that repeats the run
	Local  station.Side `json:"local"`  // this side
	Remote peer.Server  `json:"remote"` // the server's side
	// Over is what the connection goes over: the first of the rails.
	Over  link.Way    `json:"over"`
	Rails []link.Rail `json:"rails"` // the connection's rails at its end, one for each NIC
	// Rows has one entry for each operation, direction and size, in the order in which they were
	// carried out. After wrong bytes the next row is tried; any other failure ends the rows. A row
	// that a signal interrupted is left out. With --watch these are the rows of the last time that was
	// complete.
	Rows    []trial.Row `json:"rows"`
	Planned int         `json:"planned"` // how many rows there were to be

	interrupted bool // before they were done
}

// Command is `connect`.
func Command(a *app.App) *cobra.Command {
	var f params
	cmd := &cobra.Command{
		Use:   "connect ADDR",
		Short: "Move bytes to and from the buffer of a `serve`, and verify every one",
		Long: `Connect to a ` + "`dmabuf-reg serve`" + ` at ADDR (HOST:PORT, or rdma_cm://HOST:PORT),
carry out each operation at each size between its buffer and one of this side,
and verify every byte on the side where it landed, by CPU. With --both the
server's NIC carries out each operation as well, towards this side's buffer.

The target holds the complement of what is expected before each operation, and
the bytes behind it must stay as they were. Atomics are fetch-and-add and
compare-and-swap on 8 bytes, whatever the sizes.

With --watch all of that is repeated until Ctrl-C, or until something is wrong.
Once a second a line for each rail (a port of a NIC) says whether it is up, how
many operations and bytes a second this side has carried out, how many have
failed, and how many links it has lost; a terminal shows the last ones only. The
server's requests are not among them. The table at the end is of the last time
that was complete.

With --nic NAME,NAME the connection has a rail for each NIC, as the server must
have: large operations go over all of them, and when one loses its link, the
others carry on. A message of more than 32 KiB is then sent as several.

The exit status is 0 only if everything was carried out and was right.`,
		Example: `  dmabuf-reg connect 127.0.0.1:7471 --both
  dmabuf-reg connect 10.0.0.1:7471 --nic mlx5_0,mlx5_1 --plaintext --watch
  dmabuf-reg connect 10.0.0.1:7471 --tls-cert b.pem --tls-key b.key --tls-ca ca.pem
  dmabuf-reg connect 10.0.0.1:7471 --plaintext --ops write,read --sizes 64,1M --json`,
		Args: cli.Args("ADDR"),
	}
	f.Add(cmd)
	f.AddPolicy(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.ops, "ops", []string{"write", "read", "send", "atomic"}, "operations, comma separated: write, read, send, atomic")
	flags.StringSliceVar(&f.sizes, "sizes", []string{"64", "4KiB", "1MiB"}, "sizes of one operation, comma separated")
	flags.BoolVar(&f.both, "both", false, "the server carries out each operation as well, towards this side")
	flags.BoolVar(&f.watch, "watch", false, "repeat it until Ctrl-C, and write rails, rates and errors once a second")
	flags.IntVar(&f.count, "count", 16, fmt.Sprintf("how often each operation is carried out at each size, up to %d times", station.MaxAtOnce))
	flags.Uint64Var(&f.seed, "seed", 0, "repeat a run's bytes (default: random; printed)")
	options.CompleteWords(cmd, "ops", "write", "read", "send", "atomic")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.addr = args[0]
		return a.Action(func(ctx context.Context) (app.Result, error) {
			if err := f.parse(flags.Changed("seed")); err != nil {
				return nil, &cli.UsageError{Err: err}
			}
			if err := f.CheckSeveral(f.addr); err != nil {
				return nil, err
			}
			return doConnect(ctx, a, &f)
		})(cmd, nil)
	}
	return cmd
}

// parse reads what is more than a flag's syntax.
func (f *params) parse(seeded bool) (err error) {
	if err := station.CheckAddr(f.addr); err != nil {
		return err
	}
	for _, name := range f.ops {
		op, err := talk.ParseOp(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		f.work = append(f.work, op)
	}
	if f.bytes, err = cli.ParseSizes(f.sizes); err != nil {
		return err
	}
	if len(f.work) == 0 || f.count < 1 || f.count > station.MaxAtOnce {
		return fmt.Errorf("--ops must name some, and --count be 1 to %d, not %d", station.MaxAtOnce, f.count)
	}
	if !seeded {
		f.seed = rand.Uint64()
	}
	return nil
}

func doConnect(ctx context.Context, a *app.App, f *params) (r app.Result, err error) {
	err = peer.Call(ctx, &f.Flags, f.addr, f.bytes, a.Tell, func(c *peer.Client) error {
		done := &Result{Server: f.addr, Seed: f.seed, Local: c.Side, Remote: c.Server, Over: c.Way, Rails: []link.Rail{}, Rows: []trial.Row{}}
		r = done
		defer func() { done.Rails = link.Rails(c.Link) }()
		return tryAll(ctx, a, f, c, done)
	})
	return r, err
}

func (f *params) plan() (list []trial.Planned) {
	directions := []string{trial.Out}
	if f.both {
		directions = append(directions, trial.In)
	}
	for _, op := range f.work {
		sizes := f.bytes
		if op == talk.Atomic {
			sizes = []int64{8}
		}
		for _, size := range sizes {
			for _, d := range directions {
				list = append(list, trial.Planned{Op: op, Direction: d, Size: size})
			}
		}
	}
	return list
}

// Text implements app.Result.
func (r *Result) Text(w io.Writer) error {
	if err := peer.WriteSides(w, r.Local, r.Server, r.Remote, r.Rails, r.Over); err != nil {
		return err
	}
	fmt.Fprintln(w)
	rows := [][]string{{"OP", "BY", "DIRECTION", "SIZE", "COUNT", "RATE", "VERIFIED", "PATH HERE/SERVER", "RESULT"}}
	right := 0
	for _, row := range r.Rows {
		by, result := "here", "FAIL"
		if row.Direction == trial.In {
			by = "server"
		}
		if row.OK {
			result = "ok"
			right++
		}
		rows = append(rows, []string{
			row.Op, by, row.Arrow(), bytesize.Format(row.Size), strconv.Itoa(row.Count), row.Throughput(), app.Approximately(row.Verified),
			station.PathWord(r.Local.Path) + "/" + station.PathWord(r.Remote.Path), result,
		})
	}
	if err := app.Table(w, rows, nil, "nothing was carried out", "COUNT", "DIRECTION"); err != nil {
		return err
	}
	verdict := fmt.Sprintf("PASS: %d of %d: every byte was right on the side where it landed, and those behind were left alone.", right, len(r.Rows))
	switch {
	case right < len(r.Rows):
		verdict = fmt.Sprintf("FAIL: %d of %d passed.", right, len(r.Rows))
	case r.interrupted && right == 0:
		verdict = fmt.Sprintf("NO VERDICT: it was interrupted before the first of %d was done.", r.Planned)
	case r.interrupted:
		verdict = fmt.Sprintf("NO VERDICT: it was interrupted after %d of %d, which were right.", right, r.Planned)
	case right < r.Planned || right == 0:
		verdict = fmt.Sprintf("FAIL: %d of %d passed.", right, r.Planned)
	}
	_, err := fmt.Fprintf(w, "\nseed %d\n%s\n", r.Seed, verdict)
	return err
}
