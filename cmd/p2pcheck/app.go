// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/page"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
	"github.com/gpurdma/gpurdma/p2p/terminal"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// app is one run of the command.
type app struct {
	stdout, stderr io.Writer
	color          bool
	mark           string // of our own colours, for printable
	json, verbose  bool
	source         machine.Source
	live           check.Live // of this machine
	gpu, nic       []string   // names of the devices to look at; empty for all
	skip           []string   // checks to leave out
	snapshotFile   string     // --snapshot
	lspciFile      string     // --lspci
	lspciTree      string     // --lspci-tree
	notes          []string   // the values that lspci's text lacks
	baseline       string     // an earlier run
	format, output string
	svg            bool            // of topo
	wide           bool            // --wide
	html           string          // --html
	page           *page.Page      // for --html; nil if there is nothing to show
	ids            []string        // files of names of PCI devices; none where numbers are enough
	proving        bool            // --live
	limit          time.Duration   // --timeout; 0 is the default
	size           cli.Size        // --size; 0 is the default
	pid            string          // --pid
	spec           string          // --container-spec
	proofs         string          // --proofs
	unread         []string        // errors of reading the devices
	refused        string          // the subcommand whose flags or arguments Cobra refused
	reached        bool            // the command's own code began: a failure is no usage error any more
	wanted         context.Context // of serve: ends when all callers have left; nil otherwise
	told           *told           // of serve; nil otherwise
	begun          time.Time       // when the look at the machine began
	status         int
}

// output is the result of a command. --json marshals it.
type output interface {
	text(w io.Writer, a *app) error
	status() int
}

// finish prints the result and the errors.
func (a *app) finish(command string, found output, err error) int {
	status := cli.Status(err)
	if found != nil && (err == nil || status == cli.ExitUnavailable) {
		// A part of the machine that could not be read does not hide the result for the rest.
		status = result.Worse(status, found.status())
	}
	write := a.writer()
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
		status = a.printed(found.text(terminal.Writer{Writer: a.stdout, Mark: a.mark}, a), status)
	}
	if err != nil {
		cli.PrintErrors(a.stderr, program, err)
	}
	if mistaken(err) {
		fmt.Fprintf(a.stderr, "See `%s --help`.\n", a.helpOf(command))
	}
	return status
}

// helpOf is the command line whose --help describes a command. The document of a refused command line has no
// command: that is in refused.
func (a *app) helpOf(command string) string {
	if sub := cmp.Or(command, a.refused); sub != "" && sub != "check" {
		return program + " " + sub
	}
	return program
}

// mistaken reports a mistake on the command line, for which the message points to --help. A file or an
// address that the kernel refuses is no such mistake, nor is a file with other contents than its flag needs.
func mistaken(err error) bool {
	var usage *cli.UsageError
	var kernel syscall.Errno
	var file badFile
	return errors.As(err, &usage) && !errors.As(err, &kernel) && !errors.As(err, &file) && !errors.Is(err, snapshot.Err)
}

// printed is the status after the output was written: a failed write counts as a failure to look.
func (a *app) printed(err error, status int) int {
	if err == nil {
		return status
	}
	cli.PrintErrors(a.stderr, program, err)
	return cli.ExitUsage
}

// action makes cobra's RunE of a function that returns a result.
func (a *app) action(command string, find func(*machine.Machine, []drivers.GPU, []drivers.NIC) (output, error)) func(*cobra.Command, []string) error {
	return func(*cobra.Command, []string) error {
		a.reached, a.begun = true, time.Now()
		a.json = a.json || a.format == "json"
		found, err := a.look(find)
		return a.end(command, found, err)
	}
}

// end prints the result, and keeps the status.
func (a *app) end(command string, found output, err error) error {
	unwritten := a.writePage()
	if a.html == standard && unwritten == nil && a.page != nil && !a.toFile() {
		a.stdout = io.Discard // the page has it
	}
	if a.toFile() && a.writer() == nil {
		to := a.stdout
		var b bytes.Buffer
		a.stdout, a.color = &b, false // a file is no terminal
		a.status = a.finish(command, found, err)
		a.stdout = to
		a.status = a.printed(a.emit(b.Bytes()), a.status)
	} else {
		a.status = a.finish(command, found, err)
	}
	if unwritten != nil {
		a.status = a.printed(unwritten, a.status)
	}
	if a.status != cli.ExitOK {
		return fmt.Errorf("exit status %d", a.status)
	}
	return nil
}

// look finds the devices of the machine, or those that --gpu and --nic name.
func (a *app) look(find func(*machine.Machine, []drivers.GPU, []drivers.NIC) (output, error)) (output, error) {
	if a.source.Proc != "" && a.source.Sys == "" && a.source.Root == "" {
		return nil, &cli.UsageError{Err: errors.New("--proc needs --sysfs of the same machine: without it p2pcheck would read this machine's sysfs")}
	}
	switch known := a.writer() != nil; {
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
		return nil, &cli.UsageError{Err: errors.New("--timeout limits the time of --live for a pair: add --live")}
	case a.size > 0 && !a.proving:
		return nil, &cli.UsageError{Err: errors.New("--size is how much memory --live proves a pair with: add --live")}
	case a.size > math.MaxInt64:
		return nil, &cli.UsageError{Err: fmt.Errorf("--size %v: no GPU has so much memory", &a.size)}
	case a.json && a.svg:
		return nil, &cli.UsageError{Err: errors.New("--json and --svg: one or the other")}
	}
	if err := errors.Join(a.inputs(), a.replaceable()); err != nil {
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
	} else {
		release, err := a.confine()
		if err != nil {
			return nil, &cli.UsageError{Err: err}
		}
		defer release()
	}
	if err := a.readable(); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	m := a.source.Open()
	if err := a.configured(m); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	gpus, err1 := drivers.GPUs(m)
	// GPUs that do not count, as a server's own display, come last.
	slices.SortStableFunc(gpus, func(a, b drivers.GPU) int { return cmp.Compare(outside(a), outside(b)) })
	nics, err2 := drivers.NICs(m)
	if here(a.source) {
		a.live = answers()
		asked(nics, a.live.Imports)
	}
	var unread error
	a.unread = nil
	if err := errors.Join(err1, err2); err != nil {
		unread = &cli.Unavailable{Err: err}
		for line := range strings.Lines(a.unmasked(err.Error())) {
			a.unread = append(a.unread, strings.TrimSpace(line))
		}
	}
	gpus, err = only("GPU", a.gpu, gpus, func(g drivers.GPU) []string { return []string{g.Name, g.Exporter.Driver} })
	if err != nil {
		return nil, err
	}
	nics, err = only("NIC", a.nic, nics, func(n drivers.NIC) []string {
		names := []string{n.Name, n.Importer.Driver}
		if n.Importer.PCI != nil {
			names = append(names, n.Importer.PCI.String())
		}
		return names
	})
	if err != nil {
		return nil, cmp.Or(ofGuests(m, a.nic), err)
	}
	if here(a.source) {
		withheld(gpus, a.live)
	}
	found, err := find(m, gpus, nics)
	return found, errors.Join(unread, err)
}

func outside(g drivers.GPU) int {
	if g.Exporter.Class == drivers.ClassSystem {
		return 1
	}
	return 0
}

// target is the process that --pid names, which must run on this machine.
func (a *app) target() error {
	if a.pid == "" {
		return nil
	}
	pid, err := strconv.Atoi(a.pid)
	switch {
	case err != nil || pid <= 0:
		return fmt.Errorf("--pid %q: a process has a number, from 1 on", a.pid)
	case a.copied() || !here(a.source):
		return errors.New("--pid is a process of this machine: leave out --snapshot, --lspci, --root, --sysfs, --proc and --kernel")
	}
	if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid))); err != nil {
		return fmt.Errorf("--pid %d: no such process is seen from here", pid)
	}
	a.source.Process = pid
	return nil
}

// copied reports a machine that --snapshot or --lspci has.
func (a *app) copied() bool { return a.snapshotFile != "" || a.lspciFile != "" }

// confine lets no link of --root, --sysfs and --proc lead out of it. The error of a directory that is not there is that of
// readable, which names the flag.
func (a *app) confine() (release func(), err error) {
	release, err = a.source.Confine()
	if err != nil {
		return nil, cmp.Or(a.readable(), err)
	}
	return release, nil
}

// openCopy reads a snapshot or lspci's text into memory, in place of this machine. No message names the
// directory that the files seem to have.
func (a *app) openCopy() (done func(), err error) {
	if a.source.Root+a.source.Sys+a.source.Proc != "" {
		return nil, errors.New("--snapshot and --lspci describe a machine of their own: leave out --root, --sysfs and --proc")
	}
	var dir string
	if a.lspciFile != "" {
		dir, done, err = a.unpackLspci()
	} else {
		if dir, done, err = openArchive(a.snapshotFile); err != nil {
			err = fmt.Errorf("--snapshot: %w", err)
		}
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

// masked is a writer that removes the directory's name from the text, and writes in words that the
// snapshot could not read a file.
type masked struct {
	io.Writer
	dir string
}

func (m masked) Write(p []byte) (int, error) {
	_, err := io.WriteString(m.Writer, unmask(string(p), m.dir))
	return len(p), err
}

func unmask(text, dir string) string { return machine.Unmarked(strings.ReplaceAll(text, dir, "")) }

// only keeps the devices that have one of the names. called returns a device's own name first, then its
// driver's. A PCI address can lack its domain, as lspci prints it.
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
			if a, err := pciaddr.Parse(name); err == nil {
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
		there = append(there, terminal.Line(strings.Join(its, " of ")))
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

// ofGuests is the error of a host's NICs that have no RDMA device because guests have them; nil where
// the names name none.
func ofGuests(m *machine.Machine, names []string) error {
	var errs []error
	for _, name := range names {
		if a, err := pciaddr.Parse(name); err == nil && slices.Contains(p2p.GuestNICs(m), a) {
			errs = append(errs, &cli.Unavailable{Err: fmt.Errorf("the host gives NIC %v to guests: run p2pcheck in the guest that has it; on the host, p2pcheck check -v has ISO-GIVEN-AWAY for it", a)})
		}
	}
	return errors.Join(errs...)
}

// screen is where a table or a tree goes. With --wide nothing in it is folded.
func (a *app) screen(w io.Writer) io.Writer {
	if a.wide {
		return human.Wide{Writer: w}
	}
	return w
}

// style is the style of the text.
func (a *app) style() render.Style {
	return render.Style{Colors: terminal.Colors{On: a.color, Mark: a.mark}, Verbose: a.verbose, Names: a.unmasked, Copy: a.copied() || !here(a.source), Flags: a.again()}
}
