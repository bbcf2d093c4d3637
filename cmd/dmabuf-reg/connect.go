// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
)

type connectFlags struct {
	stationFlags
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

// connectResult is what `connect` did.
type connectResult struct {
	Server  string       `json:"server"`
	Seed    uint64       `json:"seed"`
	Local   side         `json:"local"`
	Remote  serverSide   `json:"remote"`
	Over    over         `json:"over"`
	Rails   []railDoc    `json:"rails"` // at the end
	Rows    []connectRow `json:"rows"`
	Planned int          `json:"planned"` // rows that there were to be

	interrupted bool // before they were done
}

// serverSide is what the server says of itself.
type serverSide struct {
	Spec   string `json:"spec"`
	NIC    string `json:"nic"`
	Size   int64  `json:"size"`
	Staged bool   `json:"staged"`
	Why    string `json:"why"` // the path and its reason, in words
	atOnce int
}

// connectRow is one operation in one direction at one size.
type connectRow struct {
	Op        string        `json:"op"`
	Direction string        `json:"direction"` // out: this side's NIC carries it out; in: the server's
	Size      int64         `json:"size"`      // bytes, each time
	Count     int           `json:"count"`
	Elapsed   time.Duration `json:"elapsed_ns"` // from the first posting to the last completion
	Rate      float64       `json:"bytes_per_s"`
	OK        bool          `json:"ok"`             // it was done, and every byte was right where it landed
	Verified  int64         `json:"verified_bytes"` // compared and right, those around the target included
	Errors    []cli.Error   `json:"errors"`
}

const (
	out = "out"
	in  = "in"
)

func (a *app) connect() *cobra.Command {
	var f connectFlags
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
	f.add(cmd)
	f.addPolicy(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.ops, "ops", []string{"write", "read", "send", "atomic"}, "operations, comma separated: write, read, send, atomic")
	flags.StringSliceVar(&f.sizes, "sizes", []string{"64", "4KiB", "1MiB"}, "sizes of one operation, comma separated")
	flags.BoolVar(&f.both, "both", false, "the server carries out each operation as well, towards this side")
	flags.BoolVar(&f.watch, "watch", false, "repeat it until Ctrl-C, and write rails, rates and errors once a second")
	flags.IntVar(&f.count, "count", 16, fmt.Sprintf("how often each operation is carried out at each size, up to %d times", maxAtOnce))
	flags.Uint64Var(&f.seed, "seed", 0, "repeat a run's bytes (default: random; printed)")
	completeWords(cmd, "ops", "write", "read", "send", "atomic")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.addr = args[0]
		return a.action(func(ctx context.Context) (result, error) {
			if err := f.parse(flags.Changed("seed")); err != nil {
				return nil, &cli.UsageError{Err: err}
			}
			if err := f.checkSeveral(f.addr); err != nil {
				return nil, err
			}
			return a.doConnect(ctx, &f)
		})(cmd, nil)
	}
	return cmd
}

// parse reads what is more than a flag's syntax.
func (f *connectFlags) parse(seeded bool) (err error) {
	if err := checkAddr(f.addr); err != nil {
		return err
	}
	for _, name := range f.ops {
		op, err := talk.ParseOp(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		f.work = append(f.work, op)
	}
	if f.bytes, err = parseSizes(f.sizes); err != nil {
		return err
	}
	if len(f.work) == 0 || f.count < 1 || f.count > maxAtOnce {
		return fmt.Errorf("--ops must name some, and --count be 1 to %d, not %d", maxAtOnce, f.count)
	}
	if !seeded {
		f.seed = rand.Uint64()
	}
	return nil
}

// overCM is before an address that rdma_cm connects to, instead of TCP.
const overCM = "rdma_cm://"

func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(addr, overCM))
	if err != nil {
		return fmt.Errorf("%q is no address: write HOST:PORT, such as 10.0.0.1%s", addr, strings.TrimPrefix(defaultListen, "127.0.0.1"))
	}
	if port == "" {
		return fmt.Errorf("%q has no port: write HOST:PORT", addr)
	}
	n, err := strconv.Atoi(port)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && (n < 0 || n > math.MaxUint16):
		return fmt.Errorf("%q: a port is 0 to %d", addr, math.MaxUint16)
	case err != nil:
		if _, err := net.LookupPort("tcp", port); err != nil {
			return fmt.Errorf("%q: %q is no port: write a number, or a name that /etc/services has", addr, port)
		}
	}
	return nil
}

func parseSizes(list []string) (sizes []int64, err error) {
	for _, s := range list {
		var n cli.Size
		if err := n.Set(s); err != nil {
			return nil, err
		}
		size, err := n.Int64()
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, size)
	}
	if len(sizes) == 0 {
		return nil, errors.New("no sizes were given")
	}
	return sizes, nil
}

func (a *app) doConnect(ctx context.Context, f *connectFlags) (r result, err error) {
	err = a.call(ctx, &f.stationFlags, f.addr, f.bytes, func(c *client) error {
		done := &connectResult{Server: f.addr, Seed: f.seed, Local: c.side, Remote: c.server, Over: c.way, Rails: []railDoc{}, Rows: []connectRow{}}
		r = done
		defer func() { done.Rails = c.railDocs() }()
		return a.tryAll(ctx, f, c, done)
	})
	return r, err
}

// offer gives the server access to this side's buffer.
func (c *client) offer(ctx context.Context) error {
	if err := c.share(ctx); err != nil {
		return err
	}
	_, err := c.ask(ctx, talk.Request{Kind: talk.Offered})
	return err
}

// planned is a row that is to be.
type planned struct {
	op        talk.Op
	direction string
	size      int64
}

func (f *connectFlags) plan() (list []planned) {
	directions := []string{out}
	if f.both {
		directions = append(directions, in)
	}
	for _, op := range f.work {
		sizes := f.bytes
		if op == talk.Atomic {
			sizes = []int64{8}
		}
		for _, size := range sizes {
			for _, d := range directions {
				list = append(list, planned{op, d, size})
			}
		}
	}
	return list
}

// text says what the server's side is, in a line.
func (s *serverSide) text(w io.Writer, addr string) {
	fmt.Fprintf(w, "server:  %s, %s of %s with %s, %s\n", addr, bytesize.Format(s.Size), s.Spec, s.NIC, s.Why)
}

// approximately is a number of bytes in a table.
func approximately(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n == 0:
		return ""
	}
	return fmt.Sprintf("%d B", n)
}

func (r *connectResult) text(w io.Writer) error {
	if err := r.Local.text(w); err != nil {
		return err
	}
	r.Remote.text(w, r.Server)
	if err := writeRails(w, r.Rails, r.Over); err != nil {
		return err
	}
	fmt.Fprintln(w)
	there := "direct"
	if before, _, ok := strings.Cut(r.Remote.Why, ":"); ok {
		there = before
	}
	rows := [][]string{{"OP", "BY", "DIRECTION", "SIZE", "COUNT", "RATE", "VERIFIED", "PATH HERE / SERVER", "RESULT"}}
	right := 0
	for _, row := range r.Rows {
		by, result := "here", "FAIL"
		if row.Direction == in {
			by = "server"
		}
		if row.OK {
			result = "ok"
			right++
		}
		rows = append(rows, []string{
			row.Op, by, row.arrow(), bytesize.Format(row.Size), strconv.Itoa(row.Count), row.rate(), approximately(row.Verified),
			r.Local.Path + " / " + there, result,
		})
	}
	if err := table(w, rows, nil, "nothing was carried out"); err != nil {
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

// rate is the bandwidth, or the operations per second if they are small.
func (row *connectRow) rate() string {
	if row.Rate > 0 && row.Rate < 1e6 {
		return fmt.Sprintf("%.0f/s", row.Rate/float64(row.Size))
	}
	return human.Rate(row.Rate)
}

// arrow is where the bytes go.
func (row *connectRow) arrow() string {
	switch there := row.Direction == out; {
	case row.Op == talk.Atomic.String() && there:
		return "on server"
	case row.Op == talk.Atomic.String():
		return "on here"
	case there == (row.Op == talk.Read.String()):
		return "server -> here"
	}
	return "here -> server"
}

// mismatch is the error of bytes that are wrong, on the side where they landed.
func mismatch(what string, f talk.Finding) error {
	return &canary.Mismatch{
		What: what, Offset: f.First, Last: f.Last, Count: f.Wrong, Expected: f.Want, Got: f.Got,
		Origin: canary.OriginUnknown, LandedAt: -1,
	}
}
