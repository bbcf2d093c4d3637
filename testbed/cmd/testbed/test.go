// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurdma/gpurdma/testbed/kernel"
	"github.com/gpurdma/gpurdma/testbed/layout"
	"github.com/gpurdma/gpurdma/testbed/suite"
	"github.com/gpurdma/gpurdma/testbed/vm"
)

// modulePath is cut from import paths in what people read.
const modulePath = "github.com/gpurdma/gpurdma"

// defaultRun are the tests meant for the guest.
const defaultRun = "^TestVM"

// kinds are the ways in which tests run: on Debian's own modules, on the RDMA core of
// kernel/patches/rdma-rereg, built with the race detector (where it runs) and on several processors, or
// after all others of their machine because no other test works after them. The first
// kind that matches a test's name counts.
var kinds = []kind{
	{re: regexp.MustCompile("^TestVMStock"), stock: true},
	{re: regexp.MustCompile("^TestVMInPlace"), rereg: true},
	{re: regexp.MustCompile("^TestVMConcurrent"), race: true},
	{re: regexp.MustCompile("^TestVMLast"), last: true},
	{re: regexp.MustCompile("")},
}

type kind struct {
	re                *regexp.Regexp
	stock, race, last bool
	rereg             bool
}

// scriptTimeout is a shell test's when it does not say.
const scriptTimeout = 30 * time.Minute

// runTest runs the guest's part of the test suite: Go tests and shell tests,
// in as few boots as the machines they ask for allow.
func runTest(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("testbed test", flag.ContinueOnError)
	var b bootFlags
	b.register(fs, 10*time.Minute)
	run := fs.String("run", defaultRun, "`regexp` of the tests to run")
	peers := fs.String("peers", "", "`regexp` of shell tests to run; all by default")
	skip := fs.String("skip", "", "`regexp` of tests, with their package before them (\"drm TestVM…\"), not to run or to require")
	race := fs.Bool("race", false, "build with the race detector")
	required := fs.Bool("required", true, "check the list of tests that must run, where nothing was deselected")
	parallel := fs.Int("parallel", 1, "how many machines to have at once")
	split := fs.Int("split", 1, "how many machines of one kind may share that kind's packages")
	also := fs.String("require-also", "", "a `file` with more tests that must run, whatever was deselected")
	ifAvailable := fs.Bool("if-available", false, "where this kernel cannot be had, say so, count the required tests as skipped, and succeed")
	passed := fs.String("passed", "", "write the names of the tests that passed to `file`, in the required list's format")
	if err := fs.Parse(args); err != nil {
		return 0, err
	}
	top, _, _ := strings.Cut(*run, "/")
	runRE, err := regexp.Compile(top)
	if err != nil {
		return 0, fmt.Errorf("-run: %w", err)
	}
	skipRE, err := regexp.Compile(*skip)
	if err != nil {
		return 0, fmt.Errorf("-skip: %w", err)
	}
	if *skip == "" {
		skipRE = nil
	}
	// With -run but without -peers, only Go tests were asked for, and the
	// other way round.
	wantGo, wantPeers := true, true
	if set := given(fs); set["run"] != set["peers"] {
		wantGo, wantPeers = set["run"], set["peers"]
	}
	peersRE, err := regexp.Compile(*peers)
	if err != nil {
		return 0, fmt.Errorf("-peers: %w", err)
	}
	if *parallel < 1 {
		return 0, fmt.Errorf("-parallel %d: at least one machine runs", *parallel)
	}
	if *split < 1 {
		return 0, fmt.Errorf("-split %d: at least one machine of a kind runs", *split)
	}
	start := time.Now()
	o, err := b.options(ctx)
	if *ifAvailable && errors.Is(err, kernel.ErrUnavailable) {
		return 0, reportUntested(b.kernel, err)
	}
	if err != nil {
		return 0, err
	}
	t := &testRun{
		ctx: ctx, opts: o, flags: b, run: *run, race: *race, skip: skipRE, parallel: *parallel, split: *split,
		bins: filepath.Join(o.Tree.Cache(), o.Kernel.Series, "tests"), shared: os.Getenv(sharedBuild),
	}
	if t.shared != "" {
		t.bins = filepath.Join(o.Tree.Cache(), "tests")
	}
	lastTime := filepath.Join(o.Tree.Cache(), o.Kernel.Series, "durations.json")
	t.took, t.spent = readDurations(lastTime), durations{}
	patterns := fs.Args()
	all := len(patterns) == 0 && !given(fs)["run"] && !given(fs)["peers"]
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	if wantGo {
		if err := t.addPackages(patterns, runRE); err != nil {
			return 0, err
		}
	}
	if wantPeers && (all || given(fs)["peers"]) {
		if err := t.addScripts(peersRE); err != nil {
			return 0, err
		}
	}
	if len(t.jobs) == 0 && len(t.summary.Results) == 0 && !all {
		return 0, errors.New("nothing to run: no test matches")
	}
	if err := t.all(); err != nil {
		return outcome(0, err)
	}
	if all {
		if err := t.spent.write(lastTime); err != nil {
			return 0, err
		}
	}
	if all && *required {
		list, err := requiredOn(o.Tree, o.Kernel.Series)
		if err != nil {
			return 0, err
		}
		list = slices.DeleteFunc(list, func(q suite.Required) bool {
			skips := t.skips(q.Group, q.Name)
			if skips {
				t.leftOut = append(t.leftOut, q)
			}
			return skips
		})
		t.summary.Check(list, modulePath)
	}
	if *also != "" {
		list, err := suite.ReadRequired(*also)
		if err != nil {
			return 0, err
		}
		t.summary.Check(list, modulePath)
	}
	if *passed != "" {
		if err := t.summary.WritePassed(*passed, modulePath); err != nil {
			return 0, err
		}
	}
	boots := fmt.Sprintf("%d boots", t.boots)
	if t.corrupted > 0 {
		boots += fmt.Sprintf(" (%d of them ended by the emulator)", t.corrupted)
	}
	title := fmt.Sprintf("Linux %s, %s, %v", o.Kernel.Release, boots, time.Since(start).Round(time.Second))
	if n := len(t.leftOut); n > 0 {
		title += fmt.Sprintf(", %d left out by -skip", n)
	}
	fmt.Printf("\n%s:\n", title)
	t.summary.Write(os.Stdout, modulePath)
	n, failed, skipped := t.summary.Count()
	count := tally{o.Kernel.Series, title, n, failed, skipped}
	if err := count.write(o.Tree, t.summary.Failures(modulePath), t.summary.Skipped(modulePath), t.leftOut); err != nil {
		return 0, err
	}
	if failed > 0 {
		return 1, nil
	}
	return 0, nil
}

// requiredOn reads the list of what must run on a series. A newer one that has none
// goes by that of the series before it, as what is written for that runs on it, too.
func requiredOn(t layout.Tree, series string) ([]suite.Required, error) {
	list := series
	files, _ := filepath.Glob(t.Required("*"))
	slices.SortFunc(files, func(a, b string) int { return kernel.Compare(seriesOf(a), seriesOf(b)) })
	for _, f := range files {
		if kernel.Meant([]string{seriesOf(f)}, series) {
			list = seriesOf(f)
		}
	}
	if list != series {
		logf("%s has no list of required tests: that of %s counts", series, list)
	}
	return suite.ReadRequired(t.Required(list))
}

func seriesOf(file string) string { return strings.TrimSuffix(filepath.Base(file), ".txt") }

// given says which flags were on the command line.
func given(fs *flag.FlagSet) map[string]bool {
	set := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
	return set
}

// testRun is one invocation.
type testRun struct {
	ctx     context.Context
	opts    vm.Options
	flags   bootFlags
	run     string
	race    bool
	skip    *regexp.Regexp   // nil: none
	leftOut []suite.Required // that skip leaves out
	bins    string
	shared  string // the value of sharedBuild
	jobs    []job
	took    durations // of the last run

	parallel int // machines at once
	split    int // machines of one kind at most

	mu        sync.Mutex // what follows
	spent     durations
	boots     int
	corrupted int // of the boots, by the emulator
	summary   suite.Summary
}

// job is a package or a script: what runs in one go in a booted machine.
type job struct {
	group   string
	machine string
	stock   bool
	rereg   bool
	several bool // processors, whatever -cpus says
	last    bool // on its machine
	do      func(v booted, o vm.Options, out io.Writer) ([]suite.Result, error)
}

// bootKey says which jobs can share a machine.
type bootKey struct {
	machine               string
	stock, rereg, several bool
}

func (j job) key() bootKey { return bootKey{j.machine, j.stock, j.rereg, j.several} }

// String names the machine where several are at work.
func (k bootKey) String() string {
	name := cmp.Or(k.machine, "default")
	if k.stock {
		name += ", stock"
	}
	if k.rereg {
		name += ", rereg"
	}
	if k.several {
		name += ", several processors"
	}
	return name
}

// boots are the machines in the order in which they are asked for, each with its jobs.
func boots(jobs []job) (order []bootKey, byKey map[bootKey][]job) {
	byKey = map[bootKey][]job{}
	for _, last := range []bool{false, true} {
		for _, j := range jobs {
			if j.last != last {
				continue
			}
			if _, ok := byKey[j.key()]; !ok {
				order = append(order, j.key())
			}
			byKey[j.key()] = append(byKey[j.key()], j)
		}
	}
	return order, byKey
}

// all runs the jobs, those that can share a machine after one another.
func (t *testRun) all() error {
	order, byKey := boots(t.jobs)
	t.took.longestFirst(order)
	var out sync.Mutex
	g, ctx := errgroup.WithContext(t.ctx)
	defer func(before context.Context) { t.ctx = before }(t.ctx)
	t.ctx = ctx
	g.SetLimit(t.parallel)
	for _, key := range order {
		q := &queue{jobs: byKey[key]}
		n := q.machines(t.split)
		for i := range n {
			name := key.String()
			if n > 1 {
				name += fmt.Sprintf(" %d", i+1)
			}
			g.Go(func() error {
				defer t.time(key, time.Now())
				if t.parallel == 1 {
					return t.group(key, q, os.Stdout)
				}
				w := &prefixWriter{mu: &out, w: os.Stdout, prefix: name + ": "}
				defer w.Flush()
				return t.group(key, q, w)
			})
		}
	}
	return g.Wait()
}

func (t *testRun) time(key bootKey, start time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spent[key.String()] += time.Since(start).Round(time.Second)
}

// group runs the jobs of a queue in machines of a kind, until none is left.
func (t *testRun) group(key bootKey, q *queue, out io.Writer) error {
	flags := t.flags
	if key.machine != "" {
		flags.machine = key.machine
	}
	if key.stock {
		flags.stock, flags.patched = true, false
	}
	flags.rereg = key.rereg
	if key.several {
		flags.cpus = 0
	}
	flags.exposeds = slices.Concat(flags.exposeds, []string{t.bins})
	o, err := flags.options(t.ctx)
	if err != nil {
		return err
	}
	return t.work(q, out, func() (booted, error) {
		v, err := vm.Start(t.ctx, o)
		if err != nil {
			return nil, err
		}
		return v, nil
	}, o)
}

// findLeaks makes the kernel look for memory that nothing points to. It is
// silent about what is younger than five seconds, and for once about what a
// register still points to. It prints what was found.
const findLeaks = `cd /sys/kernel/debug && sleep 6 && echo scan >kmemleak && sleep 6 && echo scan >kmemleak && cat kmemleak`

// leaks reports memory that a kernel with CONFIG_DEBUG_KMEMLEAK has lost.
func (t *testRun) leaks(v booted, o vm.Options) error {
	config, err := os.ReadFile(o.Kernel.Config())
	if err != nil || !bytes.Contains(config, []byte("\nCONFIG_DEBUG_KMEMLEAK=y\n")) {
		return err
	}
	var out bytes.Buffer
	status, err := v.Run(t.ctx, vm.Cmd{
		Args: []string{"/bin/sh", "-c", findLeaks}, Dir: "/", Env: environ(o),
		Stdout: &out, Stderr: &out, Timeout: t.flags.limit(t.flags.timeout),
	})
	if err == nil && (status != 0 || out.Len() > 0) {
		err = fmt.Errorf("kmemleak (status %d) has found:\n%s", status, out.String())
	}
	return err
}

func anyFailed(rs []suite.Result) bool {
	return slices.ContainsFunc(rs, func(r suite.Result) bool { return r.State == suite.Failed })
}

func (t *testRun) problem(j job, err error) {
	t.complain(fmt.Sprintf("%s: %s", suite.Short(j.group, modulePath), firstLine(err.Error())))
}

func (t *testRun) complain(problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.summary.Problems = append(t.summary.Problems, problem)
}

func (t *testRun) add(rs ...suite.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.summary.Add(rs...)
}

func (t *testRun) count(n *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*n++
}
