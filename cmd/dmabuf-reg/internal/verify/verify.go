// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/nics"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/options"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/report"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/witness"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

type params struct {
	gpu, nic string
	size     cli.Size
	seed     uint64
	cases    []string
	route    options.Route
	force    bool
	trace    bool
	locate   string
	direct   bool // --require-direct
	allPairs bool
	report   string
}

// Result is what `verify` did.
type Result struct {
	Seed     uint64            `json:"seed"`      // the value of --seed that repeats the run
	Size     int64             `json:"size"`      // the bytes that were asked for, of each allocator: --size repeats that
	Rows     []Row             `json:"rows"`      // one for each allocator and NIC, but for one that a signal interrupted
	NotTried []buffer.NotTried `json:"not_tried"` // the allocators that this machine does not offer
	Untraced string            `json:"untraced"`  // why --all-pairs did not trace; "" otherwise
	// RequireDirect is --require-direct: a row whose memory was allocated on a GPU is OK only if its
	// bytes are proven to be there.
	RequireDirect bool `json:"require_direct"`
	// Unlocated is why the program of --locate was run for no row; "" if it was run, and without
	// --locate.
	Unlocated string        `json:"unlocated"`
	Elapsed   time.Duration `json:"elapsed_ns"` // the time that the command took

	interrupted bool // before all was done
}

// Row is one allocator with one NIC.
type Row struct {
	Spec      string         `json:"spec"`       // the name of the allocator, as --gpu takes it
	NIC       string         `json:"nic"`        // the name of the NIC
	NICReason string         `json:"nic_reason"` // why this NIC was taken
	OK        bool           `json:"ok"`         // the verdict on the two
	Report    *canary.Report `json:"report"`     // the report of the verification; null if it did not come to a transfer
	Errors    []cli.Error    `json:"errors"`     // why the row is not OK
	// Placement is where the bytes of the whole buffer were after they had been moved; null without
	// --trace.
	Placement *placement.Placement `json:"placement"`
	// Failure is the refusal of the registration, as --trace saw it; null without --trace or without a
	// refusal.
	Failure *trace.Failure `json:"failure"`
	// Located is where the program of --locate found the bytes; null without one, and for memory of no
	// PCI device.
	Located *located `json:"located"`
	// Staged is why the bytes are known not to be in the GPU's memory, though they were allocated
	// there; "" if that is not known.
	Staged string `json:"staged"`
}

// Command is `verify`.
func Command(a *app.App) *cobra.Command {
	f := params{size: 4 << 20}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove byte by byte that a NIC reads and writes the memory it was given",
		Long: `For every kind of memory that this machine offers: allocate a buffer, export it
as a dma-buf, register it, write random bytes into it by RDMA WRITE, read them
back by RDMA READ, and compare every byte with what the CPU sees in the buffer.
Unaligned ranges, first and last byte, page-crossing ranges and registrations of
a part of the buffer are tried as well, and accesses that a registration does
not allow must be refused and change nothing.

The exit status is 0 only if everything that could be tried passed. Bytes that are
right may be in another place than the GPU: --require-direct makes that a failure,
and also memory of a GPU of which nothing proves where its bytes are. Where no
memory of a GPU was tried, it ends with 3.`,
		Example: `  dmabuf-reg verify
  dmabuf-reg verify --gpu drm:renderD128 --nic mlx5_0 --size 1GiB
  dmabuf-reg verify --seed 42 --json
  dmabuf-reg verify --gpu drm:renderD128 --require-direct
  dmabuf-reg verify --all-pairs --report machine.json`,
		Args: cli.NoArgs,
	}
	flags := cmd.Flags()
	cli.OnceVar(cmd, &f.gpu, "gpu", "SPEC", "all", "allocator: a spec that dmabuf-reg devices lists, auto, or all")
	cli.OnceVar(cmd, &f.nic, "nic", "NIC", "auto", "RDMA device; auto picks the nearest to the memory, all tries each")
	flags.Var(&f.size, "size", "bytes to allocate")
	flags.Uint64Var(&f.seed, "seed", 0, "repeat a run's bytes and ranges (default: random; printed)")
	flags.StringArrayVar(&f.cases, "case", nil, "run this case only; repeat for more ("+strings.Join(canary.CaseNames(), "; ")+")")
	flags.Var(&f.route, "route", "how to register: auto, provider (ibv_reg_dmabuf_mr), ioctl (REG_DMABUF_MR), or peer-direct (as auto; where no dma-buf can be, by device pointer)")
	flags.BoolVar(&f.force, "force", false, "allocate even if the memory seems not to be there; the kernel's OOM killer may disagree")
	flags.BoolVar(&f.trace, "trace", false, "trace the kernel and say where the bytes are, or which function refused (needs root)")
	flags.BoolVar(&f.direct, "require-direct", false, "fail where memory that was allocated on a GPU is not proven to be there; it traces as --trace does (needs root)")
	flags.StringVar(&f.locate, "locate", "", "run PROGRAM NONCE PCI while the PCI device's memory should hold a nonce that the NIC wrote; status 0: found, 1: not")
	flags.BoolVar(&f.allPairs, "all-pairs", false, "every memory with every NIC, traced where this user may trace")
	flags.StringVar(&f.report, "report", "", "write machine and results to FILE, without serial numbers, UUIDs, addresses and host names, to be sent to others")
	cmd.MarkFlagsMutuallyExclusive("all-pairs", "gpu")
	cmd.MarkFlagsMutuallyExclusive("all-pairs", "nic")
	_ = cmd.MarkFlagFilename("report", "json")
	options.CompleteGPU(cmd, "all")
	nics.Complete(cmd, "all")
	cmd.RunE = a.Action(func(ctx context.Context) (app.Result, error) {
		if err := buffer.NeedExporter(cmd.Name(), f.gpu); err != nil {
			return nil, err
		}
		return doVerify(ctx, a, f)
	})
	return cmd
}

// verification is one run of verify.
type verification struct {
	params
	app    *app.App
	nics   []nics.Device
	opened map[string]*ibvfd.Context
	found  *Result
	seen   *witness.Witness
	tried  bool // some memory
	onPCI  bool // some of it was on a PCI device
	onGPU  bool // some of it was the memory of a GPU
}

func doVerify(ctx context.Context, a *app.App, f params) (found app.Result, err error) {
	file, err := report.Create(f.report, a.Version)
	if err != nil {
		return nil, err
	}
	defer func() {
		var done report.Named
		if r, ok := found.(*Result); ok {
			done = r
		}
		err = errors.Join(err, file.Write(done, err))
	}()
	if f.allPairs {
		f.gpu, f.nic = "all", "all"
	}
	f.trace = f.trace || f.direct
	size, err := f.size.Int64()
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	for _, c := range f.cases {
		if !slices.Contains(canary.CaseNames(), c) {
			return nil, &cli.UsageError{Err: fmt.Errorf("there is no case %q; there are: %s", c, strings.Join(canary.CaseNames(), "; "))}
		}
	}
	if err := checkLocate(f.locate); err != nil {
		return nil, err
	}
	if err := nics.NeedLibrary(); err != nil {
		return nil, err
	}
	for f.seed == 0 {
		f.seed = rand.Uint64()
	}
	r := &Result{Seed: f.seed, Size: size, RequireDirect: f.direct, Rows: []Row{}, NotTried: []buffer.NotTried{}}
	start := time.Now()
	v := &verification{params: f, app: a, opened: map[string]*ibvfd.Context{}, found: r}
	if v.nics, err = nics.Candidates(f.nic); err != nil {
		return r, err
	}
	// Once, not for each memory.
	_, noNIC := nics.PickAmong(v.nics, f.nic, "")
	if noNIC != nil && len(v.nics) > 0 {
		return nil, noNIC
	}
	specs := []string{f.gpu}
	if f.gpu == "all" {
		specs = r.available()
		if len(specs) == 0 {
			return r, nothingToVerify(r.NotTried, buffer.OpenAllocator)
		}
	}
	if noNIC != nil && f.gpu == "all" { // one memory may have more to say
		return r, noNIC
	}
	if v.seen, err = witness.New(f.trace || f.allPairs); err != nil {
		if f.trace {
			return r, err
		}
		r.Untraced = err.Error()
	}
	defer func() { err = errors.Join(err, v.close(), v.seen.Close()) }()
	var all error
	for i, spec := range specs {
		all = errors.Join(all, v.memory(ctx, spec))
		if v.over(ctx, i+1 < len(specs)) {
			break
		}
	}
	if r.interrupted {
		all = app.Ended(ctx, all)
	}
	if f.direct && all == nil && !v.onGPU {
		all = &cli.Unavailable{Err: errors.New("--require-direct: no memory of a GPU was tried, so nothing is proven to be in one; `dmabuf-reg devices` lists the GPUs, and says why one cannot be used")}
	}
	if v.locate != "" && v.tried && !v.onPCI {
		r.Unlocated = "no memory that was tried is on a PCI device, so there was nowhere to look"
	}
	r.Elapsed = time.Since(start)
	return r, all
}

// nothingToVerify says why no allocator can be used. Those that are there and
// refuse this user are failures, with the device, errno and remedy of each.
func nothingToVerify(list []buffer.NotTried, open func(spec string) (gpualloc.Allocator, error)) (refused error) {
	for _, n := range list {
		a, err := open(n.Spec)
		if err == nil { // by now
			err = a.Close()
		}
		if errors.Is(err, fs.ErrPermission) {
			refused = errors.Join(refused, &cli.On{Subject: n.Spec, Err: err})
		}
	}
	if refused != nil {
		return refused
	}
	return &cli.Unavailable{Err: errors.New("no memory here can be exported as a dma-buf; `dmabuf-reg devices` says why")}
}

// available lists what can be tried and notes what cannot.
func (r *Result) available() (specs []string) {
	for _, d := range gpualloc.Discover(gpualloc.Env{}) {
		if d.Available {
			specs = append(specs, d.Spec)
		} else {
			r.NotTried = append(r.NotTried, buffer.NotTried{Spec: d.Spec, Why: d.Why, Remedy: d.Remedy})
		}
	}
	return specs
}

// memory tries one allocator with each NIC wanted.
func (v *verification) memory(ctx context.Context, spec string) (err error) {
	r := v.found
	add := func(row Row, err error) error {
		subject := spec
		if row.NIC != "" {
			subject += " with " + row.NIC
		}
		var wrong *canary.Mismatch
		if ctx.Err() != nil && !errors.As(err, &wrong) && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) { // that is no verdict
			r.interrupted = true
			return &cli.On{Subject: subject, Err: err}
		}
		row.Spec, row.OK, row.Errors = spec, err == nil, cli.Explain(err)
		if row.OK {
			row.Errors = []cli.Error{}
		}
		r.Rows = append(r.Rows, row)
		if row.OK {
			return nil
		}
		return &cli.On{Subject: subject, Err: err}
	}
	src, err := buffer.Allocate(ctx, spec, r.Size, v.force)
	if err != nil {
		return add(Row{}, err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	v.tried, v.onPCI = true, v.onPCI || src.PCI != ""
	v.onGPU = v.onGPU || src.Alloc.Kind() == gpualloc.KindVRAM
	choices, err := nics.PickAmong(v.nics, v.nic, src.PCI)
	if err != nil {
		return add(Row{}, err)
	}
	var all error
	for i, c := range choices {
		row, err := v.pair(ctx, src, c)
		all = errors.Join(all, add(row, err))
		if v.over(ctx, i+1 < len(choices)) {
			break
		}
	}
	return all
}

// over reports that the context has ended, and notes it where something is left to do.
func (v *verification) over(ctx context.Context, left bool) bool {
	if ctx.Err() == nil {
		return false
	}
	v.found.interrupted = v.found.interrupted || left
	return true
}

func (v *verification) pair(ctx context.Context, src *buffer.Source, c nics.Choice) (row Row, err error) {
	row.NIC, row.NICReason = c.Name, c.Why
	dev, err := v.open(c.Name)
	if err != nil {
		return row, err
	}
	var blind, lost error
	opt := canary.Options{
		Seed: v.seed, Cases: v.cases, Policy: ibvfd.RoutePolicy(v.route),
		Progress:   func(done, total int64) { v.app.Progress.Draw("verifying "+src.Spec+" with "+c.Name, done, total) },
		Registered: func(rep *canary.Report) { row.Placement, blind = v.seen.Place(ctx, c.Name, rep.LKey) },
	}
	if v.locate != "" && src.PCI != "" {
		opt.Witness = func(ctx context.Context, nonce []byte) error {
			row.Located, lost = locate(ctx, v.locate, nonce, src.PCI)
			return ctx.Err() // a failure to locate the bytes does not make them wrong
		}
	}
	row.Report, err = canary.Verify(ctx, dev, src.Alloc, opt)
	if src.Alloc.Kind() == gpualloc.KindVRAM {
		row.Staged = row.staged()
	}
	if err != nil && row.Report.MRs == 0 {
		row.refused(ctx, v.seen, err)
	}
	err = errors.Join(err, blind, lost)
	if v.direct && err == nil && src.Alloc.Kind() == gpualloc.KindVRAM {
		err = row.direct(src.PCI)
	}
	return row, err
}

// direct fails unless it is proven that the bytes are in the memory of the GPU at a PCI address.
func (row *Row) direct(gpu string) error {
	switch {
	case row.Staged != "":
		return fmt.Errorf("--require-direct: the bytes are not in the GPU's memory: %s", row.Staged)
	case row.Placement == nil:
		return errors.New("--require-direct: it is not known whether the bytes are in the GPU's memory: the trace has no place of them")
	case row.Placement.Direct() != placement.Yes || slices.ContainsFunc(row.Placement.Places, func(p placement.Place) bool {
		return p.Kind == placement.KindBAR && !p.GPU && p.Device != gpu
	}):
		return fmt.Errorf("--require-direct: it is not known whether the bytes are in the GPU's memory: the trace has %s", row.Placement)
	}
	return nil
}

// refused says which function refused the registration, in the case that failed of it,
// too, which had the words of before.
func (row *Row) refused(ctx context.Context, seen *witness.Witness, err error) {
	before := ""
	var reg *ibvfd.RegError
	if errors.As(err, &reg) {
		before = reg.Error()
	}
	row.Failure = seen.Refusal(ctx, err)
	if reg == nil {
		return
	}
	for i := range row.Report.Cases {
		c := &row.Report.Cases[i]
		c.Detail = strings.Replace(c.Detail, before, reg.Error(), 1)
	}
}

// open opens each NIC once.
func (v *verification) open(nic string) (*ibvfd.Context, error) {
	if dev, ok := v.opened[nic]; ok {
		return dev, nil
	}
	dev, err := nics.Open(nic)
	if err == nil {
		v.opened[nic] = dev
	}
	return dev, err
}

func (v *verification) close() (err error) {
	for _, dev := range v.opened {
		err = errors.Join(err, dev.Close())
	}
	return err
}

// Renamed is the result for a report, with what the functions make of the names.
func (r *Result) Renamed(nic, spec func(string) string) any {
	other := *r
	other.Rows = slices.Clone(r.Rows) // the command shows its own
	for i := range other.Rows {
		other.Rows[i].NIC, other.Rows[i].Spec = nic(other.Rows[i].NIC), spec(other.Rows[i].Spec)
	}
	return &other
}
