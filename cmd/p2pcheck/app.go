// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p"
)

const (
	program = "p2pcheck"
	schema  = "p2pcheck/v1"
)

// app is one run of the command.
type app struct {
	stdout, stderr io.Writer
	color          bool
	mark           string // of our own colours, for printable
	json, verbose  bool
	source         p2p.Source
	live           p2p.Live // of this machine
	gpu, nic       []string // the only ones to look at
	skip           []string // checks that are not carried out
	snapshotFile   string   // the machine, in one file
	lspciFile      string   // the machine, as lspci prints it
	lspciTree      string   // beside that, as lspci -t prints it
	notes          []string // what such a text lacks
	baseline       string   // an earlier run
	format, output string
	svg            bool          // of topo
	proving        bool          // --live
	limit          time.Duration // of a pair, for that; 0 is the default
	pid            string        // --pid
	reached        bool          // our code began: what fails now is no usage error
	status         int
}

// result is what was found. It is marshalled for --json.
type result interface {
	text(w io.Writer, a *app) error
	status() int
}

// run carries out one command line and returns the exit status.
func (a *app) run(args []string) int {
	a.mark = rand.Text()
	a.stderr = printable{a.stderr, ""}
	root := a.root()
	root.SetArgs(args)
	out := &cli.Remembered{Writer: a.stdout} // of help, which Cobra prints
	root.SetOut(out)
	root.SetErr(a.stderr)
	cli.Strict(root) // once it knows where to write
	err := root.Execute()
	if err == nil && !a.reached {
		return a.printed(out.Err, cli.ExitOK)
	}
	if a.reached {
		return a.status
	}
	// Cobra's own refusals, before any of our code ran: of the flags it has
	// understood those in front of the wrong one.
	a.format = formatAsked(args)
	a.json = a.json || slices.Contains(args, "--json") || a.format == "json"
	return a.finish("", nil, &cli.UsageError{Err: err})
}

// formatAsked is the value of --format. Who asked for it reads nothing else, a
// mistake on the command line neither.
func formatAsked(args []string) string {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--format="); ok {
			return value
		}
		if arg == "--format" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// finish prints what was found and what went wrong.
func (a *app) finish(command string, found result, err error) int {
	status := cli.Status(err)
	if found != nil && (err == nil || status == cli.ExitUnavailable) {
		// What could not be looked at does not hide what was found.
		status = worse(status, found.status())
	}
	write := formats[a.format]
	if a.json && write == nil {
		d := cli.Document{Schema: schema, Command: command, Version: version, OK: status == cli.ExitOK, Status: status, Errors: cli.Explain(err)}
		if found != nil {
			d.Result = found
		}
		return a.printed(d.Write(a.stdout), status)
	}
	if write != nil {
		return a.formatted(write, found, status, err)
	}
	if found != nil {
		status = a.printed(found.text(printable{a.stdout, a.mark}, a), status)
	}
	if err != nil {
		cli.PrintErrors(a.stderr, program, err)
	}
	if mistaken(err) {
		fmt.Fprintf(a.stderr, "See `%s --help`.\n", program)
	}
	return status
}

// mistaken reports a mistake on the command line, against which its help helps: not
// a file or an address that the kernel refuses, nor a file that is not what it was
// named as.
func mistaken(err error) bool {
	var usage *cli.UsageError
	var kernel syscall.Errno
	var file badFile
	return errors.As(err, &usage) && !errors.As(err, &kernel) && !errors.As(err, &file) && !errors.Is(err, errSnapshot)
}

// printed makes output that did not arrive a failure to look.
func (a *app) printed(err error, status int) int {
	if err == nil {
		return status
	}
	cli.PrintErrors(a.stderr, program, err)
	return cli.ExitUsage
}

// worse is the status that tells more: a pair that is not direct, then what is
// unknown.
func worse(x, y int) int {
	for _, status := range []int{cli.ExitFailed, cli.ExitUnavailable} {
		if x == status || y == status {
			return status
		}
	}
	return cli.ExitOK
}

// action makes a RunE of a function that finds something.
func (a *app) action(command string, find func(*p2p.Machine, []p2p.GPU, []p2p.NIC) (result, error)) func(*cobra.Command, []string) error {
	return func(*cobra.Command, []string) error {
		a.reached = true
		a.json = a.json || a.format == "json"
		found, err := a.look(find)
		return a.end(command, found, err)
	}
}

// end prints what was found, and keeps the status.
func (a *app) end(command string, found result, err error) error {
	if a.toFile() && formats[a.format] == nil {
		to := a.stdout
		var b bytes.Buffer
		a.stdout, a.color = &b, false // a file is no terminal
		a.status = a.finish(command, found, err)
		a.stdout = to
		a.status = a.printed(a.emit(b.Bytes()), a.status)
	} else {
		a.status = a.finish(command, found, err)
	}
	if a.status != cli.ExitOK {
		return fmt.Errorf("exit status %d", a.status)
	}
	return nil
}

// look finds the devices that were asked for.
func (a *app) look(find func(*p2p.Machine, []p2p.GPU, []p2p.NIC) (result, error)) (result, error) {
	if a.source.Proc != "" && a.source.Sys == "" && a.source.Root == "" {
		return nil, &cli.UsageError{Err: errors.New("--proc needs --sysfs beside it: both are of one machine, and without it sysfs would be this machine's")}
	}
	switch known := formats[a.format] != nil; {
	case a.json && known:
		return nil, &cli.UsageError{Err: fmt.Errorf("--json and --format %s: one or the other", a.format)}
	case !known && !slices.Contains([]string{"", "text", "json"}, a.format):
		return nil, &cli.UsageError{Err: fmt.Errorf("--format %s is none of text, json, nagios, npd, prometheus, nfd, dra", a.format)}
	}
	switch {
	case a.proving && (a.copied() || !here(a.source)):
		return nil, &cli.UsageError{Err: errors.New("--live is for this machine as it is: leave out --snapshot, --lspci, --root, --sysfs, --proc and --kernel")}
	case a.limit < 0:
		return nil, &cli.UsageError{Err: fmt.Errorf("--timeout %v: no time is below 0", a.limit)}
	case a.limit > 0 && !a.proving:
		return nil, &cli.UsageError{Err: errors.New("--timeout is how long --live tries a pair: add --live")}
	case a.json && a.svg:
		return nil, &cli.UsageError{Err: errors.New("--json and --svg: one or the other")}
	}
	if err := a.inputs(); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	if err := a.target(); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	skip, err := knownChecks(a.skip)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	a.skip = skip
	if a.copied() {
		done, err := a.openCopy()
		if err != nil {
			return nil, &cli.UsageError{Err: err}
		}
		defer done()
	}
	if err := a.readable(); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	m := a.source.Open()
	if err := a.configured(m); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	gpus, err1 := m.GPUs()
	// What does not count, as a server's own display, is told last.
	slices.SortStableFunc(gpus, func(a, b p2p.GPU) int { return cmp.Compare(outside(a), outside(b)) })
	nics, err2 := m.NICs()
	if here(a.source) {
		a.live = answers()
		asked(nics, a.live.Imports)
	}
	var unread error
	if err := errors.Join(err1, err2); err != nil {
		unread = &cli.Unavailable{Err: err}
	}
	gpus, err = only("GPU", a.gpu, gpus, func(g p2p.GPU) []string { return []string{g.Name, g.Exporter.Driver} })
	if err != nil {
		return nil, err
	}
	nics, err = only("NIC", a.nic, nics, func(n p2p.NIC) []string {
		names := []string{n.Name, n.Importer.Driver}
		if n.Importer.PCI != nil {
			names = append(names, n.Importer.PCI.String())
		}
		return names
	})
	if err != nil {
		return nil, err
	}
	if here(a.source) {
		withheld(gpus, a.live)
	}
	found, err := find(m, gpus, nics)
	return found, errors.Join(unread, err)
}

func outside(g p2p.GPU) int {
	if g.Exporter.Class == p2p.ClassSystem {
		return 1
	}
	return 0
}

// target is the process that --pid names: of this machine, while it runs.
func (a *app) target() error {
	if a.pid == "" {
		return nil
	}
	pid, err := strconv.Atoi(a.pid)
	switch {
	case err != nil || pid <= 0:
		return fmt.Errorf("--pid %q: a process has a number, from 1 on", a.pid)
	case a.copied() || !here(a.source):
		return errors.New("--pid is of this machine as it is: leave out --snapshot, --lspci, --root, --sysfs, --proc and --kernel")
	}
	if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid))); err != nil {
		return fmt.Errorf("--pid %d: no such process is seen from here", pid)
	}
	a.source.Process = pid
	return nil
}

// copied reports a machine that one file has, or two.
func (a *app) copied() bool { return a.snapshotFile != "" || a.lspciFile != "" }

// openCopy puts a snapshot, or what lspci printed, in the place of this machine. No
// message names the directory that it is unpacked into: it is gone afterwards.
func (a *app) openCopy() (done func(), err error) {
	if a.source.Root+a.source.Sys+a.source.Proc != "" {
		return nil, errors.New("--snapshot and --lspci are a machine of their own: leave out --root, --sysfs and --proc")
	}
	var dir string
	if a.lspciFile != "" {
		dir, done, err = a.unpackLspci()
	} else {
		dir, done, err = unpacked(a.snapshotFile)
	}
	if err != nil {
		return nil, err
	}
	a.source.Root = dir
	a.stdout, a.stderr = masked{a.stdout, dir}, masked{a.stderr, dir}
	return done, nil
}

// unmasked is a text as masked writes it.
func (a *app) unmasked(text string) string {
	if !a.copied() {
		return text
	}
	return unmask(text, a.source.Root)
}

// masked leaves a directory's name out of what is written, and says in words what
// the snapshot could not read.
type masked struct {
	io.Writer
	dir string
}

func (m masked) Write(p []byte) (int, error) {
	_, err := io.WriteString(m.Writer, unmask(string(p), m.dir))
	return len(p), err
}

func unmask(text, dir string) string { return p2p.Unmarked(strings.ReplaceAll(text, dir, "")) }

// only keeps the devices that have one of the names: the first of the names of a
// device is its own, the second its driver's. A PCI address may be without its
// domain, as lspci prints it.
func only[T any](what string, names []string, all []T, called func(T) []string) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	found := map[string]bool{}
	var out []T
	var there []string
	for _, x := range all {
		its := called(x)
		keep := false
		for _, name := range names {
			address := name
			if a, err := p2p.ParseAddr(name); err == nil {
				address = a.String()
			}
			if name != "" && slices.ContainsFunc(its, func(one string) bool { return strings.EqualFold(one, name) || one == address }) {
				keep, found[name] = true, true
			}
		}
		if keep {
			out = append(out, x)
		}
		its = slices.DeleteFunc(slices.Compact(its[:2]), func(name string) bool { return name == "" })
		there = append(there, strings.Join(its, " of "))
	}
	for _, name := range names {
		if found[name] {
			continue
		}
		if len(there) == 0 {
			there = []string{"none"}
		}
		return nil, &cli.Unavailable{Err: fmt.Errorf("no %s here is called %q; there is %s", what, name, strings.Join(there, ", "))}
	}
	return out, nil
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   program,
		Short: "Predict whether RDMA NICs reach GPU memory, and say what is in the way",
		Long: `p2pcheck predicts for every GPU and RDMA NIC what becomes of a registration of
the GPU's memory with the NIC, by the rules of this kernel and its drivers:

  direct   the NIC gets addresses of the GPU's memory
  STAGED   it gets system memory instead, and nobody says so
  REFUSED  it gets an error
  ?        not known; unknown is never a yes

For each pair that is not direct it gives the reasons, and the one thing to
change. Then come the checks: what else could be in the way, failures first.
Root sees more than others: ACS is hidden from them.

With --live each pair is tried as well: memory is allocated on the GPU,
registered with the NIC, written and read by RDMA, and every byte compared, while
the kernel is traced, which says where the bytes were. A proof that contradicts
its prediction is told before all else. Without --live no data is moved.

Another machine is analysed from a copy of its files: --root DIR with sys, proc
and boot below it, or --sysfs DIR and --proc DIR. --lspci FILE takes what lspci
printed there: the tree and ACS are known then, and no pair is direct.

Exit status: 0 all pairs are direct and no check fails, 1 some pair is staged or
refused, or a check fails, 2 wrong usage or nothing could be read, 3 no pair to
check, or nothing is bad and something is unknown. With --live the proof decides,
a pair that could not be proven is unknown, 1 is also for bytes that are wrong
and for predictions that the proof contradicts, and 130 for an interruption,
after closing everything. Pairs of a device that has no memory of its own (vgem,
virtio graphics) are shown and do not count, and neither do checks that only ever
warn.`,
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          a.action("check", a.check),
	}
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print one JSON document (schema "+schema+")")
	flags.StringVar(&a.source.Root, "root", "", "read the machine whose sys, proc and boot are below this directory")
	flags.StringVar(&a.source.Sys, "sysfs", "", "sysfs of the machine")
	flags.StringVar(&a.source.Proc, "proc", "", "procfs of the machine")
	flags.StringVar(&a.source.Release, "kernel", "", "release of its kernel, if procfs does not have it (\"6.12.1\")")
	flags.StringVar(&a.source.Config, "config", "", "configuration of its kernel (\"/boot/config-…\")")
	flags.StringSliceVar(&a.gpu, "gpu", nil, "only these GPUs: PCI address (\"0000:13:00.0\", \"13:00.0\"), name or driver")
	flags.StringSliceVar(&a.nic, "nic", nil, "only these NICs: RDMA device, PCI address or driver")
	flags.StringSliceVar(&a.skip, "skip", nil, "leave out these checks: IDs or families (\"KRN-BTF,NET\"), \"all\"")
	root.Flags().BoolVarP(&a.verbose, "verbose", "v", false, "reasons of all pairs, the direct ones too, notes, and all checks")
	root.Flags().BoolVar(&a.proving, "live", false, "prove each pair: allocate, register, write, read, compare, under trace (root, in short)")
	root.Flags().DurationVar(&a.limit, "timeout", 0, "with --live: how long a pair may take (default 1m)")
	root.Flags().StringVar(&a.pid, "pid", "", "limits, capabilities, control group, /dev/shm and environment (as it was started) of this process, not of p2pcheck")
	root.Flags().StringVar(&a.baseline, "baseline", "", "compare with what --json printed in an earlier run: what is worse is a failure")
	root.Flags().StringVar(&a.format, "format", "text", "text, json, nagios, npd (node-problem-detector), prometheus, nfd (node-feature-discovery), dra (attributes for dynamic resource allocation)")
	flags.StringVarP(&a.output, "output", "o", "", "write there in place of the standard output (-): a file is replaced, whole or not at all, a device written to")
	flags.StringVar(&a.snapshotFile, "snapshot", "", "analyse the machine that this file has: of snapshot, or of rdma_topo dump (-: standard input)")
	flags.StringVar(&a.lspciFile, "lspci", "", "analyse the machine of this text, of lspci -vvvnn -D as root (-: standard input); what lspci does not print is unknown")
	flags.StringVar(&a.lspciTree, "lspci-tree", "", "with --lspci: the text of lspci -tv, which names root buses (-: standard input)")
	a.completeFlags(root)
	root.PersistentPreRunE = usesFlags
	root.AddCommand(a.explain(), a.snapshot(), a.diff(), a.report(), a.serve())
	draw := &cobra.Command{
		Use:   "topo",
		Short: "Draw the PCI tree of GPUs and NICs, and what each way is called",
		Long: `topo draws GPUs, NICs, NVMe controllers and the bridges above them, with what
decides: ACS, the IOMMU and its groups, NUMA nodes, links and memory regions. A
virtual function is below its physical one. The table has for each pair the
kernel's decision, beside the letters that NCCL and nvidia-smi give the same
way. They name its shape, not whether the kernel lets it be used. LINKS is what
the slowest link of that way carries at most, and where it is if the links of
GPU and NIC could do more. With --gpu or --nic no NVMe controllers are drawn.

Exit status: 0, or 2 if nothing could be read, 3 without GPU or NIC.`,
		Args: cobra.NoArgs,
		RunE: a.action("topo", a.topo),
	}
	draw.Flags().BoolVar(&a.svg, "svg", false, "a drawing, in SVG")
	draw.Flags().BoolVarP(&a.verbose, "verbose", "v", false, "all ACS bits, the ports' groups, where regions are, what both ends of links could")
	root.AddCommand(draw)
	return root
}
