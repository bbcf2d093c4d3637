// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/trace"
)

// traceFlags choose what is traced and where it is written.
type traceFlags struct {
	pids      []int
	cgroup    string
	exporters []string
	importers []string
	inodes    []uint
	all       bool
	lasting   time.Duration
	output    string
}

// tracing is the first line of --json: what can be seen.
type tracing struct {
	Event      string       `json:"event"` // "tracing"
	RDMA       bool         `json:"rdma"`  // ib_uverbs is loaded and watched
	Hooks      []trace.Hook `json:"hooks"`
	Unreadable []string     `json:"unreadable"` // processes and files that the inventory could not read
}

// traceResult is the end of `trace` and `explain`.
type traceResult struct {
	Command string        `json:"command_line,omitempty"` // that was run
	Status  *int          `json:"command_status"`         // its exit status, null without one
	Summary trace.Summary `json:"summary"`
	// Filtered are events of others than the exporters and importers asked for.
	Filtered uint64 `json:"filtered"`
}

func (a *app) trace() *cobra.Command {
	f := traceFlags{}
	cmd := &cobra.Command{
		Use:   "trace [flags] [-- COMMAND ARG...]",
		Short: "Watch the kernel register dma-bufs: where the bytes are, and which function refused",
		Long: `Follow every dma-buf registration with eBPF and print a line for whatever happens
to it: registered, refused and by which kernel function, moved, revoked,
released. The programs that register need no change. Without a filter the
whole system is traced, until Ctrl-C, which is an ordinary end with status 0; with
COMMAND, that program and those it starts, until it ends.

A line names the place of the bytes only if it is proven. At the end come counts, the
time up to each function's return since the one before, registrations that were not
deregistered, and the number of lost events. --json prints an object for each event, one a line,
and the document at last; give it a file with --output.

With COMMAND, this command writes to stderr, or to --output, so that COMMAND has
stdout for itself, and the exit status is COMMAND's (126 if it cannot be run, 127
if it cannot be found, 128 and the signal's number if one killed it).`,
		Example: `  dmabuf-reg trace
  dmabuf-reg trace --pid 4711 --importer mlx5_0
  dmabuf-reg trace --json --output trace.json -- ib_write_bw --use_cuda=0 node2`,
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&f.pids, "pid", nil, "these processes only, until they have ended; those that they start are not included")
	flags.StringVar(&f.cgroup, "cgroup", "", "processes below this cgroup v2 directory only")
	f.common(cmd)
	flags.BoolVar(&f.all, "all", false, "attachments that no memory registration makes, too: displays, video")
	flags.DurationVar(&f.lasting, "for", 0, "end after this long, such as 30s")
	a.watching(cmd, &f, newLines)
	return cmd
}

// common are the flags of trace and explain.
func (f *traceFlags) common(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.exporters, "exporter", nil, "buffers of these exporters only, by the name or driver that a line has: amdgpu, udmabuf, system")
	flags.StringSliceVar(&f.importers, "importer", nil, "these importers only, by RDMA device, PCI function, device, or the module that attaches: mlx5_0")
	flags.UintSliceVar(&f.inodes, "inode", nil, "these dma-bufs only, by inode")
	flags.StringVarP(&f.output, "output", "o", "", "write to this file (- is stdout)")
}

// watching gives a command the body of trace and explain.
func (a *app) watching(cmd *cobra.Command, f *traceFlags, show func(io.Writer) printer) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if at := cmd.ArgsLenAtDash(); at == 0 && len(args) == 0 {
			return errors.New("-- without a command behind it")
		}
		// A script's empty variable would trace everything.
		for _, name := range []string{"cgroup", "exporter", "importer", "output"} {
			if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed && slices.Contains([]string{"", "[]"}, flag.Value.String()) {
				return fmt.Errorf("--%s is empty", name)
			}
		}
		if flag := cmd.Flags().Lookup("for"); flag != nil && flag.Changed && f.lasting <= 0 {
			return fmt.Errorf("--for %v: it takes a time of more than 0, such as 30s", f.lasting)
		}
		if at := cmd.ArgsLenAtDash(); at != 0 && len(args) > 0 {
			return fmt.Errorf("%q: write -- before the command to run", args[0])
		}
		return nil
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) { // of `explain ls -l`
			err = fmt.Errorf("%w; what belongs to a command comes after --: %s -- COMMAND", err, cmd.CommandPath())
		}
		return cmd.Parent().FlagErrorFunc()(cmd, err)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.lines = true
		return a.action(func(ctx context.Context) (result, error) {
			return a.doTrace(ctx, f, args, show)
		})(cmd, args)
	}
}

func (f *traceFlags) config() (trace.Config, error) {
	c := trace.Config{PIDs: f.pids, Cgroup: f.cgroup, RDMAOnly: !f.all}
	for _, p := range f.pids {
		if p <= 0 {
			return c, &cli.UsageError{Err: fmt.Errorf("--pid %d is no process", p)}
		}
	}
	if _, err := os.Stat(f.cgroup); f.cgroup != "" && errors.Is(err, fs.ErrNotExist) {
		return c, &cli.Unavailable{Err: fmt.Errorf("there is no cgroup %s", f.cgroup)}
	}
	if slices.Contains(f.exporters, "") || slices.Contains(f.importers, "") {
		return c, &cli.UsageError{Err: errors.New("--exporter and --importer take names; an empty one matches nothing")}
	}
	for _, name := range f.exporters {
		if _, last, ok := strings.Cut(name, ":"); ok {
			return c, &cli.UsageError{Err: fmt.Errorf("--exporter %s: that says what to allocate; give an exporter's own name or its driver's, as a line has it: %s", name, last)}
		}
	}
	if len(f.pids) > 0 && trace.Namespaced("") {
		return c, &cli.Unavailable{Err: errors.New("--pid: in this PID namespace (a container?) processes have other numbers than in the kernel; run on the host, or use --cgroup or -- COMMAND")}
	}
	for _, i := range f.inodes {
		if i == 0 {
			return c, &cli.UsageError{Err: errors.New("--inode 0 is no dma-buf")}
		}
		c.Inodes = append(c.Inodes, uint64(i))
	}
	return c, nil
}

// wants applies the filters that the kernel's side does not have.
func (f *traceFlags) wants(r *trace.Record) bool {
	has := func(list []string, names ...string) bool {
		return len(list) == 0 || slices.ContainsFunc(names, func(n string) bool { return n != "" && slices.Contains(list, n) })
	}
	var exporter, driver, device, pci, module string
	if r.Buffer != nil {
		exporter, driver = r.Buffer.Exporter, r.Buffer.Driver
	}
	if r.Importer != nil {
		device, pci, module = r.Importer.Device, r.Importer.PCI, r.Importer.Module
	}
	if r.Outside && !f.all {
		return false
	}
	return has(f.exporters, exporter, driver) && has(f.importers, r.RDMADevice, device, pci, module)
}

// printer shows events to people.
type printer interface {
	event(trace.Event) error
}

func (a *app) doTrace(ctx context.Context, f *traceFlags, argv []string, show func(io.Writer) printer) (result, error) {
	c, err := f.config()
	if err != nil {
		return nil, err
	}
	var cmd *foreign
	if len(argv) > 0 {
		if len(f.pids) > 0 || f.cgroup != "" {
			return nil, &cli.UsageError{Err: errors.New("--pid and --cgroup exclude a COMMAND: it is what is traced")}
		}
		if f.lasting != 0 {
			return nil, &cli.UsageError{Err: errors.New("--for excludes a COMMAND: tracing ends when it does, and timeout(1) ends it")}
		}
		if cmd, err = newForeign(argv, a.stdout, a.stderr); err != nil {
			return nil, err
		}
		// Nothing of this process or its children is older than the tracer.
		c.Self, c.Children, c.NoInventory = true, true, true
		a.stdout = a.stderr
	}
	watched, err := openProcesses(f.pids)
	if err != nil {
		return nil, err
	}
	defer watched.close()
	if err := a.redirect(f.output, cmd); err != nil {
		return nil, err
	}
	tracer, err := openTracer(c)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // while it was attached
		return nil, errors.Join(fmt.Errorf("ended before tracing began: %w", context.Cause(ctx)), tracer.Close())
	}
	if cmd != nil {
		// COMMAND goes on if the reader of this command's output is gone, and its exit
		// status is this command's. COMMAND itself gets SIGPIPE's old action.
		signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	}
	w := &watch{flags: f, tracer: tracer, done: make(chan error, 1)}
	var out printer = jsonLines{a.stdout}
	if !a.json {
		out = show(a.stdout)
	}
	if err := a.announce(tracer, f, cmd); err != nil {
		return nil, errors.Join(err, tracer.Close())
	}
	go w.read(out)

	r := &traceResult{}
	failed := w.wait(ctx, cmd, watched, f.lasting)
	r.Summary, err = w.end()
	r.Filtered = w.passed
	if cmd != nil && cmd.ended() {
		status, signal := cmd.exit()
		r.Command, r.Status = strings.Join(argv, " "), &status
		if status != 0 {
			err = errors.Join(&cli.Exit{What: argv[0], Code: status, Signal: signal}, err)
		}
	}
	return r, errors.Join(failed, err)
}

// redirect sends what is printed to --output. COMMAND keeps what it has.
func (a *app) redirect(output string, cmd *foreign) error {
	switch {
	case output == "":
	case output == "-":
		if cmd != nil {
			a.stdout = cmd.Stdout
		}
	default:
		f, err := os.Create(output)
		if err != nil {
			return cli.Unwritten("the trace", "--output", output, err)
		}
		a.stdout, a.output = f, f
	}
	return nil
}

// openTracer says by the exit status whether tracing could work here at all.
func openTracer(c trace.Config) (*trace.Tracer, error) {
	t, err := trace.Open(c)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, &cli.Unavailable{Err: err}
	}
	return t, err
}

// announce says what can be seen and what cannot, before anything is.
func (a *app) announce(t *trace.Tracer, f *traceFlags, cmd *foreign) error {
	say := func(format string, args ...any) { fmt.Fprintf(a.stderr, program+": "+format+"\n", args...) }
	if !t.RDMA() {
		go func() { // until the tracer is closed
			if t.AwaitRDMA(context.Background()) == nil {
				say("ib_uverbs is watched from %s on; what registered before that was not seen", time.Now().Format("15:04:05"))
			}
		}()
	}
	unreadable := []string{}
	for _, e := range t.Unreadable() {
		unreadable = append(unreadable, e.Error())
	}
	if a.json {
		return writeLine(a.stdout, tracing{Event: "tracing", RDMA: t.RDMA(), Hooks: t.Hooks(), Unreadable: unreadable})
	}
	if !t.RDMA() {
		say("ib_uverbs is not loaded, so nothing can register memory yet; it is attached to when it comes")
	}
	for _, u := range unreadable {
		say("what existed before may be incomplete: %s", u)
	}
	for _, h := range t.Hooks() {
		// A function that this kernel does not have is not missed.
		if !h.Attached() && !strings.HasPrefix(h.Absent, "not in this kernel") {
			say("not watched: %s (%s): %s", h.Function, h.What, h.Absent)
		}
	}
	switch {
	case cmd != nil:
	case f.lasting != 0:
		say("tracing for %v", f.lasting)
	case len(f.pids) > 0:
		say("tracing; Ctrl-C, or the end of what --pid names, ends it with a summary")
	default:
		say("tracing; Ctrl-C ends it with a summary")
	}
	return nil
}

// watch reads a tracer's events.
type watch struct {
	flags  *traceFlags
	tracer *trace.Tracer
	stats  trace.Stats
	passed uint64     // events that the filters left out
	done   chan error // what read ended with
}

// read shows events until the tracer is closed.
func (w *watch) read(out printer) {
	for e, err := range w.tracer.Events(context.Background()) {
		switch {
		case err != nil:
		case w.flags.wants(&e.Record):
			w.stats.Add(e)
			err = out.event(e)
		default:
			w.passed++
		}
		if err != nil {
			w.done <- err
			return
		}
	}
	w.done <- nil
}

// wait returns when there is a reason to end: COMMAND ended, or all processes of --pid,
// the time is over, Ctrl-C, or the reader of the output is gone.
func (w *watch) wait(ctx context.Context, cmd *foreign, watched *processes, lasting time.Duration) error {
	if cmd != nil {
		if err := cmd.Start(); err != nil {
			return cmd.notStarted(err)
		}
		cmd.wait(ctx)
		return nil
	}
	var over <-chan time.Time
	if lasting > 0 {
		over = time.After(lasting)
	}
	select {
	case <-over:
	case <-watched.ended:
	case <-ctx.Done(): // the ordinary end of a trace
	case err := <-w.done:
		w.done <- err
	}
	return nil
}

// patience bounds how long the last events may take to arrive.
const patience = time.Minute

// end closes the tracer and shows the rest.
func (w *watch) end() (trace.Summary, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	flushed := w.tracer.Flush(ctx)
	live := slices.DeleteFunc(w.tracer.Records(), func(r trace.Record) bool { return !w.flags.wants(&r) })
	loss := w.tracer.Loss()
	err := w.tracer.Close()
	read := <-w.done
	return w.stats.Summary(live, loss), errors.Join(read, flushed, err)
}

// jsonLines prints one object a line.
type jsonLines struct{ w io.Writer }

func (j jsonLines) event(e trace.Event) error { return writeLine(j.w, e) }

func writeLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// lines prints a line for each event.
type lines struct{ w io.Writer }

func newLines(w io.Writer) printer { return lines{w} }

func (l lines) event(e trace.Event) error {
	r, pid := &e.Record, "-" // the process is not known
	if e.Record.PID != 0 {
		pid = fmt.Sprint(e.Record.PID)
	}
	_, err := fmt.Fprintf(l.w, "%s  %-11s  %7s %-15s  %s\n", e.Time.Format("15:04:05.000000"), e.Kind, pid, r.Comm, eventText(e))
	return err
}

// eventText is what an event says beside who and when.
func eventText(e trace.Event) string {
	r := &e.Record
	var parts []string
	if who := importerText(r); who != "" {
		parts = append(parts, who)
	}
	if r.Buffer != nil {
		parts = append(parts, bufferText(r.Buffer))
	}
	switch e.Kind {
	case trace.Refused, trace.MapRefused:
		parts = append(parts, r.Explain().String())
	case trace.Probed:
		parts = append(parts, probedText)
	case trace.GivenUp:
		parts = append(parts, "too many live; what becomes of it is not followed")
	case trace.Released:
		parts = append(parts, endText(r))
	default:
		parts = append(parts, placementText(r))
	}
	if e.Kind == trace.Existing && len(r.Incomplete) > 0 {
		parts[len(parts)-1] += "; not known: " + strings.Join(r.Incomplete, "; ")
	}
	if e.Kind == trace.Registered {
		parts[len(parts)-1] += fmt.Sprintf(", in %s", human.Duration(r.Duration))
	}
	return strings.Join(parts, ": ")
}

// endText says how a record ended, and when.
func endText(r *trace.Record) string {
	s := fmt.Sprintf("%s after %s", r.Ended, human.Duration(r.EndedAt.Sub(r.Start)))
	if r.Existed {
		s += " of tracing"
	}
	return s
}

// probedText is what a call without a descriptor was for.
const probedText = "asked, with descriptor -1, whether the driver registers dma-bufs, which it does"

func importerText(r *trace.Record) string {
	switch {
	case r.RDMADevice != "" && r.MR != nil:
		return fmt.Sprintf("%s MR %d", r.RDMADevice, r.MR.Number)
	case r.RDMADevice != "":
		return r.RDMADevice
	case r.Importer != nil:
		return r.Importer.Device
	}
	return ""
}

func bufferText(b *trace.Buffer) string {
	name := b.Exporter
	if b.Driver != "" && b.Driver != b.Exporter {
		name += " (" + b.Driver + ")"
	}
	return fmt.Sprintf("%s dma-buf %d of %s", name, b.Inode, bytesize.Format(int64(b.Size)))
}

func placementText(r *trace.Record) string {
	s := r.Placement.String()
	if r.DemotedBy != "" {
		s += "; demoted by " + r.DemotedBy + ", which may not use peer-to-peer"
	}
	if r.Unreachable != "" {
		s += "; " + r.Unreachable
	}
	return s
}

// shownUnreleased bounds the list; --json has more.
const shownUnreleased = 16

func (r *traceResult) text(to io.Writer) error {
	s, w := &r.Summary, bufio.NewWriter(to)
	fmt.Fprintf(w, "\nevents:   %s\n", countsText(s.Events, "none"))
	if r.Filtered > 0 {
		fmt.Fprintf(w, "          %d more left out: of other exporters, importers or processes than were asked for\n", r.Filtered)
	}
	if len(s.Memory) > 0 {
		fmt.Fprintf(w, "where:    %s\n", countsText(s.Memory, ""))
	}
	if len(s.Refusals) > 0 {
		fmt.Fprintf(w, "refused:  %s\n", countsText(s.Refusals, ""))
	}
	fmt.Fprintf(w, "loss:     %s\n", strings.TrimPrefix(s.Loss.String(), "lost: "))
	if len(s.Latency) > 0 {
		rows := [][]string{{"TIME UP TO", "COUNT", "P50", "P99", "MAX"}}
		for _, l := range s.Latency {
			name := l.Function
			if name == "" {
				name = "whole registrations"
			}
			rows = append(rows, []string{name, fmt.Sprint(l.Count), human.Duration(l.P50), human.Duration(l.P99), human.Duration(l.Max)})
		}
		fmt.Fprintln(w)
		if err := human.Table(w, rows); err != nil {
			return err
		}
	}
	if s.NUnreleased == 0 {
		return w.Flush()
	}
	fmt.Fprintf(w, "\nregistrations that were not deregistered: %d\n", s.NUnreleased)
	for _, u := range s.Unreleased[:min(len(s.Unreleased), shownUnreleased)] {
		how := "left to the end of its process"
		if u.Lives {
			how = "still registered"
		}
		buffer := ""
		if u.Record.Buffer != nil {
			buffer = ", " + bufferText(u.Record.Buffer)
		}
		fmt.Fprintf(w, "  %s of %s[%d]%s: %s\n", importerText(&u.Record), u.Record.Comm, u.Record.PID, buffer, how)
	}
	if n := s.NUnreleased - uint64(min(len(s.Unreleased), shownUnreleased)); n > 0 {
		fmt.Fprintf(w, "  ... and %d more\n", n)
	}
	return w.Flush()
}

// countsText lists counts by name.
func countsText[K ~string](m map[K]uint64, none string) string {
	if len(m) == 0 {
		return none
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(parts, ", ")
}
