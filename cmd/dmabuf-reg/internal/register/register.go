// SPDX-License-Identifier: Apache-2.0

package register

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/nics"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/options"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/witness"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/region"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

// Params are the parameters of one registration.
type Params struct {
	gpu, nic    string
	fd          int
	size        cli.Size
	offset      cli.Size
	length      cli.Size
	iova        cli.Size
	Access      options.Access
	route       options.Route
	Count       int
	hold        time.Duration
	force       bool
	skipChecks  bool
	trace       bool
	lengthGiven bool
	iovaGiven   bool
}

// Result is what `register` did.
type Result struct {
	Memory    buffer.Description `json:"memory"`     // the memory that was registered
	NIC       string             `json:"nic"`        // the name of the NIC
	NICReason string             `json:"nic_reason"` // why this NIC was taken
	Offset    uint64             `json:"offset"`     // the offset of the registered range in the memory, in bytes
	Length    uint64             `json:"length"`     // the length of the registered range in bytes
	IOVA      uint64             `json:"iova"`       // the address by which work requests name the first byte
	Access    string             `json:"access"`     // the access flags, in words
	Count     int                `json:"count"`      // how many registrations were made, each of all segments
	MRs       []mr               `json:"mrs"`        // the memory regions
	P50       time.Duration      `json:"p50_ns"`     // the median time of one registration
	P99       time.Duration      `json:"p99_ns"`     // the 99th percentile of the time of one registration
	// Hold is how long the registrations are kept. With --hold the document is printed when that time
	// begins.
	Hold time.Duration `json:"hold_ns"`
	// Failure is the refusal of the kernel, as --trace saw it; null without --trace or without a
	// refusal.
	Failure *trace.Failure `json:"failure"`
}

// mr is one memory region.
type mr struct {
	Number    *uint32              `json:"mrn"`       // the MR's number in `rdma resource show mr`; null if unknown
	LKey      uint32               `json:"lkey"`      // the key for work requests of this side
	RKey      uint32               `json:"rkey"`      // the key for work requests of a peer
	IOVA      uint64               `json:"iova"`      // the address by which work requests name the first byte
	Length    uint64               `json:"length"`    // the length in bytes
	Route     ibvfd.Route          `json:"route"`     // the call that registered it
	RegTime   time.Duration        `json:"reg_ns"`    // the time that the registration took
	Placement *placement.Placement `json:"placement"` // where the bytes are; null without --trace and beyond the first 16 MRs
	// Why says why the bytes of GPU memory are not there, where --trace saw the kernel decide that.
	Why string `json:"why,omitempty"`
}

// Command is `register`.
func Command(a *app.App) *cobra.Command {
	f := Params{size: 1 << 20, Access: options.DefaultAccess}
	cmd := &cobra.Command{
		Use:   "register",
		Short: "Allocate or import a buffer and register it with a NIC",
		Long: `Allocate a buffer, export it as a dma-buf, register the range given with a NIC
and print inode, keys, the route taken and the time.

A registration that fails names the stages between which the refusal lies, the
kernel's errno and what to change. --skip-checks leaves every check of the range
to the kernel, to see what it says.`,
		Example: `  dmabuf-reg register --gpu drm:renderD128 --size 64MiB
  dmabuf-reg register --gpu udmabuf --offset 0x1000 --length 64KiB --iova 0x1000
  dmabuf-reg register --count 1000            # p50 and p99 of the registration
  dmabuf-reg register --hold 1m --json &      # keep it, for other tools to use`,
		Args: cli.NoArgs,
	}
	flags := cmd.Flags()
	cli.OnceVar(cmd, &f.gpu, "gpu", "SPEC", "auto", "allocator: a spec that dmabuf-reg devices lists, or auto")
	flags.IntVar(&f.fd, "fd", -1, "register this open dma-buf descriptor, inherited from the parent, instead of allocating")
	cli.OnceVar(cmd, &f.nic, "nic", "NIC", "auto", "RDMA device; auto picks the nearest that registers dma-bufs and says why")
	flags.Var(&f.size, "size", "bytes to allocate; rounded up to what the exporter can do")
	flags.Var(&f.offset, "offset", "start of the range in the buffer")
	flags.Var(&f.length, "length", "length of the range (default: to the end of the buffer)")
	flags.Var(&f.iova, "iova", "address of the range's first byte for RDMA (default: the offset)")
	flags.Var(&f.Access, "access", "access flags, comma separated, or a number: "+options.AccessNames())
	flags.Var(&f.route, "route", "how to register: auto, provider (ibv_reg_dmabuf_mr), ioctl (REG_DMABUF_MR), or peer-direct (as auto; where no dma-buf can be, by device pointer)")
	flags.IntVar(&f.Count, "count", 1, "register this many times; all MRs live until the end, and each takes system memory")
	flags.DurationVar(&f.hold, "hold", 0, "keep the registration this long, such as 30s (Ctrl-C ends it)")
	flags.BoolVar(&f.force, "force", false, "allocate and register even if the memory seems not to be there; the kernel's OOM killer may disagree")
	flags.BoolVar(&f.skipChecks, "skip-checks", false, "let the kernel judge range and access instead of refusing beforehand")
	cmd.MarkFlagsMutuallyExclusive("fd", "gpu")
	cmd.MarkFlagsMutuallyExclusive("fd", "size")
	flags.BoolVar(&f.trace, "trace", false, "trace the kernel and say where the bytes are, or which function refused (needs root)")
	options.CompleteGPU(cmd)
	nics.Complete(cmd)
	cmd.RunE = a.Action(func(ctx context.Context) (app.Result, error) {
		f.lengthGiven, f.iovaGiven = flags.Changed("length"), flags.Changed("iova")
		if f.Count < 1 || f.hold < 0 || flags.Changed("fd") && f.fd < 0 {
			return nil, &cli.UsageError{Err: fmt.Errorf("--count must be 1 or more, --hold and --fd not negative: count %d, hold %v, fd %d", f.Count, f.hold, f.fd)}
		}
		if _, err := f.size.Int64(); err != nil {
			return nil, &cli.UsageError{Err: err}
		}
		if err := buffer.NeedExporter(cmd.Name(), f.gpu); err != nil {
			return nil, err
		}
		return doRegister(ctx, a, f)
	})
	return cmd
}

func (f *Params) open(ctx context.Context) (*buffer.Source, error) {
	if f.fd >= 0 {
		return buffer.Import(f.fd)
	}
	return buffer.Allocate(ctx, f.gpu, int64(f.size), f.force)
}

func doRegister(ctx context.Context, a *app.App, f Params) (_ app.Result, err error) {
	if err := nics.NeedLibrary(); err != nil {
		return nil, err
	}
	seen, err := witness.New(f.trace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, seen.Close()) }()
	src, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()

	choice, err := nics.Pick(f.nic, src.PCI)
	if err != nil {
		return nil, err
	}
	dev, err := nics.Open(choice.Name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pd.Close()) }()

	r := &Result{
		Memory: src.Description, NIC: choice.Name, NICReason: choice.Why,
		Offset: uint64(f.offset), Length: uint64(f.length), IOVA: uint64(f.iova), Access: f.Access.String(), MRs: []mr{}, Hold: f.hold,
	}
	if !f.iovaGiven {
		r.IOVA = r.Offset
	}
	if !f.lengthGiven {
		if err := r.toTheEnd(src, f.skipChecks); err != nil {
			return r, err
		}
	}
	var space *Room
	if !f.force {
		if space, err = newRoom(dev, src, r, f.Count); err != nil {
			return r, err
		}
	}
	regions, err := r.Register(ctx, a.Progress, f, src, pd, space)
	defer func() {
		for _, g := range regions {
			err = errors.Join(err, g.Close())
		}
	}()
	if err != nil {
		r.Failure = seen.Refusal(ctx, err)
		return r, err
	}
	if err := r.prove(ctx, seen); err != nil || f.hold == 0 {
		return r, err
	}
	return hold(ctx, a, r, f.hold)
}

// toTheEnd makes the range one of all that is left of the buffer behind its offset.
func (r *Result) toTheEnd(src *buffer.Source, skipChecks bool) error {
	size := uint64(src.Size)
	switch {
	case r.Offset < size:
		r.Length = size - r.Offset
	case skipChecks:
		r.Length = 1 // for the kernel to refuse
	default:
		return &ibvfd.RegError{
			Device: r.NIC, Attr: ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: src.Segments[0].Buf, Offset: r.Offset, IOVA: r.IOVA},
			Errno: unix.EINVAL, Earliest: fault.StageArgs, Latest: fault.StageArgs, Cause: fault.CauseBadRange,
			Detail: fmt.Sprintf("nothing is left from offset %#x on of a buffer of %#x bytes", r.Offset, size),
			Remedy: fmt.Sprintf("choose an --offset below %#x", size),
		}
	}
	return nil
}

// prove asks where the MRs that are shown have their bytes.
func (r *Result) prove(ctx context.Context, seen *witness.Witness) (err error) {
	for i := range r.MRs[:min(len(r.MRs), shownMRs)] {
		m := &r.MRs[i]
		if m.Placement, err = seen.Place(ctx, r.NIC, m.LKey); err != nil {
			return err
		}
		if r.staged(m) {
			m.Why = seen.Why(r.NIC, m.LKey)
		}
	}
	return nil
}

// Register makes the registrations as long as there is room for them, or all
// if space is nil. The regions that it returns are open even if there is an
// error too.
func (r *Result) Register(ctx context.Context, progress *cli.Progress, f Params, src *buffer.Source, pd *ibvfd.PD, space *Room) ([]*region.Region, error) {
	attr := region.Attr{
		Segments: src.Segments, Offset: r.Offset, Length: r.Length, IOVA: r.IOVA,
		Access: ibvfd.Access(f.Access), Owner: src.Owner, Policy: ibvfd.RoutePolicy(f.route), SkipChecks: f.skipChecks, Timed: true,
	}
	var regions []*region.Region
	var times []time.Duration
	for i := range f.Count {
		if ctx.Err() != nil {
			return regions, context.Cause(ctx)
		}
		var g *region.Region
		var err error
		if i > 0 { // newRoom has looked
			err = space.look(i)
		}
		if err == nil {
			g, err = region.Register(attr, pd)
		}
		if err != nil {
			if i > 0 {
				err = &cli.On{Subject: fmt.Sprintf("registration %d of %d", i+1, f.Count), Err: err}
			}
			return regions, err
		}
		regions = append(regions, g)
		var sum time.Duration
		for _, m := range g.MRs(pd) {
			sum += m.RegTime()
		}
		times = append(times, sum)
		progress.Draw("registering", int64(i+1), int64(f.Count))
	}
	// Only now: one look at the kernel's list then numbers them all.
	for _, g := range regions {
		for _, m := range g.MRs(pd) {
			r.MRs = append(r.MRs, newMR(m))
		}
	}
	r.Count = len(regions)
	r.P50, r.P99 = cli.Percentile(times, 50), cli.Percentile(times, 99)
	return regions, nil
}

func newMR(m *ibvfd.MR) mr {
	d := mr{LKey: m.LKey(), RKey: m.RKey(), IOVA: m.IOVA(), Length: m.Length(), Route: m.Route(), RegTime: m.RegTime()}
	if id := m.ID(); id.NumberKnown {
		d.Number = &id.Number
	}
	return d
}

// hold prints what there is and keeps it until the time is over.
func hold(ctx context.Context, a *app.App, r *Result, d time.Duration) (app.Result, error) {
	if err := a.Early("register", r); err != nil {
		return nil, err
	}
	if !a.JSON {
		fmt.Fprintf(a.Stderr, "%s: holding it for %v as process %d; Ctrl-C releases it\n", app.Program, d, os.Getpid())
	}
	select {
	case <-time.After(d):
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// shownMRs bounds the table; --json has all.
const shownMRs = 16

// Text implements app.Result.
func (r *Result) Text(w io.Writer) error {
	m := r.Memory
	from := m.Spec
	if from == "" {
		from = m.Device
	}
	size := bytesize.Format(m.Size)
	if m.Requested != m.Size {
		size += fmt.Sprintf(" (%s asked for, rounded up)", bytesize.Format(m.Requested))
	}
	const under = "         " // a label
	said := []error{
		human.Line(w, fmt.Sprintf("%s, exporter %s, %s, %s, inode %d, %d segment(s)", from, m.Exporter, m.Words(), size, m.Inode, m.Segments), "memory:  ", under),
		human.Line(w, fmt.Sprintf("%s: %s", r.NIC, r.NICReason), "nic:     ", under),
		human.Line(w, fmt.Sprintf("offset %#x, length %#x, IOVA %#x, access %s", r.Offset, r.Length, r.IOVA, r.Access), "range:   ", under),
	}
	if r.Failure != nil {
		said = append(said, human.Line(w, fmt.Sprintf("by %s: %v", r.Failure.Function, r.Failure), "refused: ", under))
	}
	if err := errors.Join(said...); err != nil {
		return err
	}
	if len(r.MRs) == 0 {
		return nil
	}
	rows := [][]string{{"MR", "LKEY", "RKEY", "IOVA", "LENGTH", "ROUTE", "TIME"}}
	for _, m := range r.MRs[:min(len(r.MRs), shownMRs)] {
		rows = append(rows, []string{
			number(m.Number), fmt.Sprintf("%#x", m.LKey), fmt.Sprintf("%#x", m.RKey), fmt.Sprintf("%#x", m.IOVA),
			fmt.Sprintf("%#x", m.Length), string(m.Route), human.Duration(m.RegTime),
		})
	}
	fmt.Fprintln(w)
	if err := human.Table(w, r.withPlacement(rows), "LKEY", "RKEY", "IOVA"); err != nil {
		return err
	}
	if i := slices.IndexFunc(r.MRs, func(m mr) bool { return r.staged(&m) }); i >= 0 {
		text := fmt.Sprintf("NOT IN THE GPU'S MEMORY: allocated in VRAM, and registered: the bytes are in %s", r.MRs[i].Placement)
		if err := human.Line(w, text, "\n", "    "); err != nil {
			return err
		}
		if why := r.MRs[i].Why; why != "" {
			if err := human.Line(w, why, "", "    "); err != nil {
				return err
			}
		}
	}
	if n := len(r.MRs) - shownMRs; n > 0 {
		fmt.Fprintf(w, "... and %d more (--json lists them all)\n", n)
	}
	if r.Count > 1 {
		fmt.Fprintf(w, "\n%d registrations: p50 %s, p99 %s\n", r.Count, human.Duration(r.P50), human.Duration(r.P99))
	}
	return nil
}

// staged reports that bytes that were asked for in a GPU's memory are not there.
func (r *Result) staged(m *mr) bool {
	return r.Memory.VRAM() && m.Placement != nil && m.Placement.Direct() == placement.No
}

// withPlacement adds a column, if the user asked where the bytes are.
func (r *Result) withPlacement(rows [][]string) [][]string {
	if r.MRs[0].Placement == nil {
		return rows
	}
	rows[0] = append(rows[0], "BYTES")
	for i := range rows[1:] {
		rows[i+1] = append(rows[i+1], r.MRs[i].Placement.String())
	}
	return rows
}

func number(n *uint32) string {
	if n == nil {
		return "unknown"
	}
	return strconv.FormatUint(uint64(*n), 10)
}
