// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

type verifyFlags struct {
	gpu, nic string
	size     cli.Size
	seed     uint64
	cases    []string
	route    routeFlag
	force    bool
	trace    bool
	locate   string
	allPairs bool
	report   string
}

// verifyResult is what `verify` did.
type verifyResult struct {
	Seed     uint64      `json:"seed"`
	Size     int64       `json:"size"` // bytes asked for, of each allocator
	Rows     []verifyRow `json:"rows"` // one per allocator and NIC
	NotTried []notTried  `json:"not_tried"`
	Untraced string      `json:"untraced"` // why --all-pairs did not trace; "" otherwise
	// Unlocated is why the program of --locate was never run; "" otherwise.
	Unlocated string        `json:"unlocated"`
	Elapsed   time.Duration `json:"elapsed_ns"`

	interrupted bool // before all was done
}

// verifyRow is one allocator with one NIC.
type verifyRow struct {
	Spec      string         `json:"spec"`
	NIC       string         `json:"nic"`
	NICReason string         `json:"nic_reason"`
	OK        bool           `json:"ok"`
	Report    *canary.Report `json:"report"` // null if it did not come to a transfer
	Errors    []cli.Error    `json:"errors"`
	// Placement is where the bytes of the whole buffer were after they had been
	// moved, Failure which kernel function refused; null without --trace.
	Placement *placement.Placement `json:"placement"`
	Failure   *trace.Failure       `json:"failure"`
	// Located is where the program of --locate found the bytes; null without
	// one, and for memory of no PCI device.
	Located *located `json:"located"`
	// Staged says why the bytes are known not to be in the GPU's memory though
	// they were allocated there; "" if that is not known.
	Staged string `json:"staged"`
}

// notTried is an allocator that this machine does not offer.
type notTried struct {
	Spec   string `json:"spec"`
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
}

func (a *app) verify() *cobra.Command {
	f := verifyFlags{size: 4 << 20}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove byte by byte that a NIC reads and writes the memory it was given",
		Long: `For every kind of memory that this machine offers: allocate a buffer, export it
as a dma-buf, register it, write random bytes into it by RDMA WRITE, read them
back by RDMA READ, and compare every byte with what the CPU sees in the buffer.
Unaligned ranges, first and last byte, page-crossing ranges and registrations of
a part of the buffer are tried as well, and accesses that a registration does
not allow must be refused and change nothing.

The exit status is 0 only if everything that could be tried passed.`,
		Example: `  dmabuf-reg verify
  dmabuf-reg verify --gpu drm:renderD128 --nic mlx5_0 --size 1GiB
  dmabuf-reg verify --seed 42 --json
  dmabuf-reg verify --all-pairs --report machine.json`,
		Args: cobra.NoArgs,
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
	flags.StringVar(&f.locate, "locate", "", "run PROGRAM NONCE PCI while the PCI device's memory should hold a nonce that the NIC wrote; status 0: found, 1: not")
	flags.BoolVar(&f.allPairs, "all-pairs", false, "every memory with every NIC, traced where this user may trace")
	flags.StringVar(&f.report, "report", "", "write machine and results to FILE, without serial numbers, UUIDs, addresses and host names, to be sent to others")
	cmd.MarkFlagsMutuallyExclusive("all-pairs", "gpu")
	cmd.MarkFlagsMutuallyExclusive("all-pairs", "nic")
	_ = cmd.MarkFlagFilename("report", "json")
	completeSpecs(cmd, "all")
	cmd.RunE = a.action(func(ctx context.Context) (result, error) { return a.doVerify(ctx, f) })
	return cmd
}

// verification is one run of verify.
type verification struct {
	verifyFlags
	app    *app
	nics   []nic
	opened map[string]*ibvfd.Context
	found  *verifyResult
	seen   *witness
	tried  bool // some memory
	onPCI  bool // some of it was on a PCI device
}

func (a *app) doVerify(ctx context.Context, f verifyFlags) (found result, err error) {
	file, err := newReportFile(f.report)
	if err != nil {
		return nil, err
	}
	defer func() {
		done, _ := found.(*verifyResult)
		err = errors.Join(err, file.write(done, err))
	}()
	if f.allPairs {
		f.gpu, f.nic = "all", "all"
	}
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
	if err := needLibrary(); err != nil {
		return nil, err
	}
	for f.seed == 0 {
		f.seed = rand.Uint64()
	}
	r := &verifyResult{Seed: f.seed, Size: size, Rows: []verifyRow{}, NotTried: []notTried{}}
	start := time.Now()
	v := &verification{verifyFlags: f, app: a, opened: map[string]*ibvfd.Context{}, found: r}
	if v.nics, err = candidates(f.nic); err != nil {
		return r, err
	}
	// Once, not for each memory.
	_, noNIC := pickNICs(v.nics, f.nic, allocated{})
	if noNIC != nil && len(v.nics) > 0 {
		return nil, noNIC
	}
	specs := []string{f.gpu}
	if f.gpu == "all" {
		specs = r.available()
		if len(specs) == 0 {
			return r, nothingToVerify(r.NotTried, openAllocator)
		}
	}
	if noNIC != nil && f.gpu == "all" { // one memory may have more to say
		return r, noNIC
	}
	if v.seen, err = newWitness(f.trace || f.allPairs); err != nil {
		if f.trace {
			return r, err
		}
		r.Untraced = err.Error()
	}
	defer func() { err = errors.Join(err, v.close(), v.seen.close()) }()
	var all error
	for i, spec := range specs {
		all = errors.Join(all, v.memory(ctx, spec))
		if v.over(ctx, i+1 < len(specs)) {
			break
		}
	}
	if r.interrupted {
		all = ended(ctx, all)
	}
	if v.locate != "" && v.tried && !v.onPCI {
		r.Unlocated = "no memory that was tried is on a PCI device, so there was nowhere to look"
	}
	r.Elapsed = time.Since(start)
	return r, all
}

// nothingToVerify says why no allocator can be used. Those that are there and
// refuse this user are failures, with the device, errno and remedy of each.
func nothingToVerify(list []notTried, open func(spec string) (gpualloc.Allocator, error)) (refused error) {
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
func (r *verifyResult) available() (specs []string) {
	for _, d := range gpualloc.Discover(gpualloc.Env{}) {
		if d.Available {
			specs = append(specs, d.Spec)
		} else {
			r.NotTried = append(r.NotTried, notTried{d.Spec, d.Why, d.Remedy})
		}
	}
	return specs
}

// memory tries one allocator with each NIC wanted.
func (v *verification) memory(ctx context.Context, spec string) (err error) {
	r := v.found
	add := func(row verifyRow, err error) error {
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
	src, err := allocate(ctx, spec, r.Size, v.force)
	if err != nil {
		return add(verifyRow{}, err)
	}
	defer func() { err = errors.Join(err, src.close()) }()
	v.tried, v.onPCI = true, v.onPCI || src.PCI != ""
	choices, err := pickNICs(v.nics, v.nic, src.allocated)
	if err != nil {
		return add(verifyRow{}, err)
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

func (v *verification) pair(ctx context.Context, src *source, c choice) (row verifyRow, err error) {
	row.NIC, row.NICReason = c.Name, c.Why
	dev, err := v.open(c.Name)
	if err != nil {
		return row, err
	}
	var blind, lost error
	opt := canary.Options{
		Seed: v.seed, Cases: v.cases, Policy: ibvfd.RoutePolicy(v.route),
		Progress:   func(done, total int64) { v.app.progress.Draw("verifying "+src.Spec+" with "+c.Name, done, total) },
		Registered: func(rep *canary.Report) { row.Placement, blind = v.seen.place(ctx, c.Name, rep.LKey) },
	}
	if v.locate != "" && src.PCI != "" {
		opt.Witness = func(ctx context.Context, nonce []byte) error {
			row.Located, lost = locate(ctx, v.locate, nonce, src.PCI)
			return ctx.Err() // a failure to locate the bytes does not make them wrong
		}
	}
	row.Report, err = canary.Verify(ctx, dev, src.alloc, opt)
	if src.alloc.Kind() == gpualloc.KindVRAM {
		row.Staged = row.staged()
	}
	if err != nil && row.Report.MRs == 0 {
		row.refused(ctx, v.seen, err)
	}
	return row, errors.Join(err, blind, lost)
}

// refused says which function refused the registration, in the case that failed of it,
// too, which had the words of before.
func (row *verifyRow) refused(ctx context.Context, seen *witness, err error) {
	before := ""
	var reg *ibvfd.RegError
	if errors.As(err, &reg) {
		before = reg.Error()
	}
	row.Failure = seen.refusal(ctx, err)
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
	dev, err := openNIC(nic)
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

func (r *verifyResult) text(w io.Writer) error {
	rows := [][]string{{"MEMORY", "DRIVER", "NIC", "INODE", "ROUTE", "LKEY", "RKEY", "REG TIME", "WRITE", "READ", "VERIFIED", "RESULT"}}
	passed := 0
	for _, row := range r.Rows {
		cells := []string{row.Spec, "", row.NIC, "", "", "", "", "", "", "", "", "FAIL"}
		if p := row.Report; p != nil {
			cells[1] = p.Driver
			if p.MRs > 0 {
				cells[3], cells[4] = strconv.FormatUint(p.Inode, 10), string(p.Route)
				cells[5], cells[6] = fmt.Sprintf("%#x", p.LKey), fmt.Sprintf("%#x", p.RKey)
				cells[7] = human.Duration(p.RegTime)
			}
			cells[8], cells[9] = human.Rate(p.WriteRate), human.Rate(p.ReadRate)
			cells[10] = fmt.Sprintf("%.1f MiB", float64(p.VerifiedBytes)/(1<<20))
		}
		if row.OK {
			cells[11] = "ok"
			passed++
		}
		if r.traced() {
			cells = append(cells, row.where())
		}
		if r.located() {
			says := ""
			if row.Located != nil {
				says = row.Located.words()
			}
			cells = append(cells, says)
		}
		rows = append(rows, cells)
	}
	if r.traced() {
		rows[0] = append(rows[0], "BYTES")
	}
	if r.located() {
		rows[0] = append(rows[0], "LOOKED FOR AND")
	}
	if err := table(w, rows, nil, "nothing was verified"); err != nil {
		return err
	}
	for _, row := range r.Rows {
		row.details(w)
	}
	for _, row := range r.Rows {
		if row.OK && row.Staged != "" {
			fmt.Fprintf(w, "NOT IN THE GPU'S MEMORY: %s with %s was allocated in VRAM, registered, written, read and verified,\nand its bytes are not there: %s\n", row.Spec, row.NIC, row.Staged)
		}
	}
	if len(r.NotTried) > 0 {
		var specs []string
		for _, n := range r.NotTried {
			specs = append(specs, n.Spec)
		}
		fmt.Fprintf(w, "not available here, so not tried: %s (`dmabuf-reg devices` says why)\n", strings.Join(specs, ", "))
	}
	if r.Untraced != "" {
		fmt.Fprintf(w, "not traced, so nothing says where the bytes were: %s\n", r.Untraced)
	}
	if r.Unlocated != "" {
		fmt.Fprintf(w, "not looked for with --locate: %s\n", r.Unlocated)
	}
	fmt.Fprintf(w, "\nseed %d, buffers of %s, %s\n", r.Seed, r.sizes(), human.Duration(r.Elapsed))
	verdict := fmt.Sprintf("PASS: %d of %d: every byte that the NIC wrote and read was the right one, in the right place, and\nnothing else changed.", passed, len(r.Rows))
	switch {
	case passed < len(r.Rows):
		verdict = fmt.Sprintf("FAIL: %d of %d passed.", passed, len(r.Rows))
	case r.interrupted && passed == 0:
		verdict = "NO VERDICT: it was interrupted before the first was done."
	case r.interrupted:
		verdict = fmt.Sprintf("NO VERDICT: it was interrupted after %d, which were right.", passed)
	case len(r.Rows) == 0:
		verdict = "FAIL: there was nothing to verify."
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}

// sizes says how large the buffers were, which may be more than was asked for.
func (r *verifyResult) sizes() string {
	asked := bytesize.Format(r.Size)
	var sizes []int64
	for _, row := range r.Rows {
		if row.Report != nil && row.Report.Size > 0 {
			sizes = append(sizes, row.Report.Size)
		}
	}
	if len(sizes) == 0 {
		return asked
	}
	least, most := slices.Min(sizes), slices.Max(sizes)
	if least == r.Size && most == r.Size {
		return asked
	}
	text := bytesize.Format(least)
	if most != least {
		text += " to " + bytesize.Format(most)
	}
	return fmt.Sprintf("%s (asked for: %s; rounded up)", text, asked)
}

// traced reports whether the rows were traced.
func (r *verifyResult) traced() bool {
	return slices.ContainsFunc(r.Rows, func(row verifyRow) bool { return row.Placement != nil || row.Failure != nil })
}

// located reports that a program was asked where the bytes are.
func (r *verifyResult) located() bool {
	return slices.ContainsFunc(r.Rows, func(row verifyRow) bool { return row.Located != nil })
}

// staged says how it is known that the bytes are not in the PCI device's
// memory.
func (row *verifyRow) staged() string {
	if row.Placement != nil && row.Placement.Direct() == placement.No {
		return "the kernel put them into " + row.Placement.String()
	}
	if row.Located != nil && !row.Located.Found {
		return "--locate's program says: " + row.Located.words()
	}
	return ""
}

func (row *verifyRow) where() string {
	switch {
	case row.Placement != nil:
		return row.Placement.String()
	case row.Failure != nil:
		return row.Failure.Detail
	}
	return ""
}

// details lists a failed row's cases.
func (row *verifyRow) details(w io.Writer) {
	if row.OK || row.Report == nil {
		return
	}
	notRun := 0
	for _, c := range row.Report.Cases {
		state := "ok"
		switch {
		case c.NotRun:
			notRun++
			continue
		case c.Skipped:
			state = "skipped"
		case !c.OK:
			state = "FAIL"
		}
		fmt.Fprintf(w, "  %s, %s: %s: %s\n", row.Spec, c.Name, state, c.Detail)
	}
	if notRun > 0 {
		fmt.Fprintf(w, "  %s: %d further cases were not run\n", row.Spec, notRun)
	}
}
