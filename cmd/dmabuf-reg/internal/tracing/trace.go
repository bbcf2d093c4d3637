// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/witness"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/trace"
)

// params choose what is traced and where it is written.
type params struct {
	pids      []int
	cgroup    string
	exporters []string
	importers []string
	inodes    []uint
	all       bool
	lasting   time.Duration
	output    string
}

// Tracing is the first line of --json: what can be seen.
type Tracing struct {
	Event string `json:"event"` // "tracing"
	// RDMA says that ib_uverbs is loaded and watched; if it is not, the trace attaches to it when it
	// is loaded.
	RDMA       bool         `json:"rdma"`
	Hooks      []trace.Hook `json:"hooks"`      // the kernel functions that are watched, or why they are not
	Unreadable []string     `json:"unreadable"` // the processes and files that the inventory at the start could not read
}

// Result is the end of `trace` and `explain`.
type Result struct {
	Command  string        `json:"command_line,omitempty"` // the COMMAND that was run
	Status   *int          `json:"command_status"`         // the exit status of COMMAND; null without one
	Summary  trace.Summary `json:"summary"`                // the counts and times of the trace
	Filtered uint64        `json:"filtered"`               // the events of other exporters, importers or processes than were asked for
}

// Trace is the command `trace`.
func Trace(a *app.App) *cobra.Command {
	f := params{}
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
	watching(a, cmd, &f, newLines)
	return cmd
}

// common are the flags of trace and explain.
func (f *params) common(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.exporters, "exporter", nil, "buffers of these exporters only, by the name or driver that a line has: amdgpu, udmabuf, system")
	flags.StringSliceVar(&f.importers, "importer", nil, "these importers only, by RDMA device, PCI function, device, or the module that attaches: mlx5_0")
	flags.UintSliceVar(&f.inodes, "inode", nil, "these dma-bufs only, by inode")
	flags.StringVarP(&f.output, "output", "o", "", "write to this file (- is stdout)")
}

// watching gives a command the body of trace and explain.
func watching(a *app.App, cmd *cobra.Command, f *params, show func(io.Writer) printer) {
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
		a.Lines = true
		return a.Action(func(ctx context.Context) (app.Result, error) {
			return doTrace(ctx, a, f, args, show)
		})(cmd, args)
	}
}

func (f *params) config() (trace.Config, error) {
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
func (f *params) wants(r *trace.Record) bool {
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

func doTrace(ctx context.Context, a *app.App, f *params, argv []string, show func(io.Writer) printer) (app.Result, error) {
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
		if cmd, err = newForeign(argv, a.Stdout, a.Stderr); err != nil {
			return nil, err
		}
		// Nothing of this process or its children is older than the tracer.
		c.Self, c.Children, c.NoInventory = true, true, true
		a.Stdout = a.Stderr
	}
	watched, err := openProcesses(f.pids)
	if err != nil {
		return nil, err
	}
	defer watched.close()
	if err := redirect(a, f.output, cmd); err != nil {
		return nil, err
	}
	tracer, err := witness.OpenTracer(c)
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
	var out printer = jsonLines{a.Stdout}
	if !a.JSON {
		out = show(a.Stdout)
	}
	if err := announce(a, tracer, f, cmd); err != nil {
		return nil, errors.Join(err, tracer.Close())
	}
	go w.read(out)

	r := &Result{}
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
func redirect(a *app.App, output string, cmd *foreign) error {
	switch {
	case output == "":
	case output == "-":
		if cmd != nil {
			a.Stdout = cmd.Stdout
		}
	default:
		f, err := os.Create(output)
		if err != nil {
			return cli.Unwritten("the trace", "--output", output, err)
		}
		a.PrintTo(f)
	}
	return nil
}

// announce says what can be seen and what cannot, before anything is.
func announce(a *app.App, t *trace.Tracer, f *params, cmd *foreign) error {
	say := func(format string, args ...any) { fmt.Fprintf(a.Stderr, app.Program+": "+format+"\n", args...) }
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
	if a.JSON {
		return writeLine(a.Stdout, Tracing{Event: "tracing", RDMA: t.RDMA(), Hooks: t.Hooks(), Unreadable: unreadable})
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
	flags  *params
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
