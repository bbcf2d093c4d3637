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
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurdma/gpurdma/testbed/gotest"
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
	start := time.Now()
	o, err := b.options(ctx)
	if *ifAvailable && errors.Is(err, kernel.ErrUnavailable) {
		return 0, reportUntested(b.kernel, err)
	}
	if err != nil {
		return 0, err
	}
	t := &testRun{
		ctx: ctx, opts: o, flags: b, run: *run, race: *race, skip: skipRE, parallel: *parallel,
		bins: filepath.Join(o.Tree.Cache(), o.Kernel.Series, "tests"), shared: os.Getenv(sharedBuild),
	}
	if t.shared != "" {
		t.bins = filepath.Join(o.Tree.Cache(), "tests")
	}
	lastTime := filepath.Join(o.Tree.Cache(), o.Kernel.Series, "durations.json")
	t.took = readDurations(lastTime)
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
		if err := t.took.write(lastTime); err != nil {
			return 0, err
		}
	}
	if all && *required {
		list, err := requiredOn(o.Tree, o.Kernel.Series)
		if err != nil {
			return 0, err
		}
		whole := len(list)
		list = slices.DeleteFunc(list, func(q suite.Required) bool { return t.skips(q.Group, q.Name) })
		t.leftOut = whole - len(list)
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
	if t.leftOut > 0 {
		title += fmt.Sprintf(", %d left out by -skip", t.leftOut)
	}
	fmt.Printf("\n%s:\n", title)
	t.summary.Write(os.Stdout, modulePath)
	n, failed, skipped := t.summary.Count()
	if err := tally(o.Tree, o.Kernel.Series, title, n, failed, skipped, t.summary.Failures(modulePath)...); err != nil {
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

// reportUntested says that none of a series' tests ran, and how many that are.
func reportUntested(series string, why error) error {
	tree, err := findTree()
	if err != nil {
		return err
	}
	list, err := requiredOn(tree, series)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("Linux %s, NOT TESTED", series)
	fmt.Printf("\n%s: %v\n0 passed, 0 failed, %d skipped\n", title, why, len(list))
	return tally(tree, series, title, 0, 0, len(list))
}

// tally leaves a run's failures and counts where `make test` collects those of
// all kernels.
func tally(t layout.Tree, series, title string, passed, failed, skipped int, failures ...string) error {
	var text strings.Builder
	for _, f := range failures {
		fmt.Fprintf(&text, "FAIL %s: %s\n", series, f)
	}
	fmt.Fprintf(&text, "%s: %d passed, %d failed, %d skipped\n", title, passed, failed, skipped)
	dir := filepath.Join(t.Cache(), series)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tally"), []byte(text.String()), 0o644)
}

// given says which flags were on the command line.
func given(fs *flag.FlagSet) map[string]bool {
	set := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
	return set
}

// testRun is one invocation.
type testRun struct {
	ctx   context.Context
	opts  vm.Options
	flags bootFlags
	run   string
	race  bool
	skip  *regexp.Regexp // nil: none
	// leftOut counts the required tests that skip leaves out.
	leftOut int
	bins    string
	shared  string // the value of sharedBuild
	jobs    []job

	parallel int // machines at once

	mu        sync.Mutex // what follows
	took      durations
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
	do      func(v *vm.VM, o vm.Options, out io.Writer) ([]suite.Result, error)
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
		g.Go(func() error {
			defer t.time(key, time.Now())
			if t.parallel == 1 {
				return t.group(key, byKey[key], os.Stdout)
			}
			w := &prefixWriter{mu: &out, w: os.Stdout, prefix: key.String() + ": "}
			defer w.Flush()
			return t.group(key, byKey[key], w)
		})
	}
	return g.Wait()
}

func (t *testRun) time(key bootKey, start time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took[key.String()] = time.Since(start).Round(time.Second)
}

// group runs jobs in one machine. A machine that died, hung or whose kernel
// reported a fault fails the job it happened in; the rest get a new one. A job in
// which the emulator corrupted the kernel is run once more.
func (t *testRun) group(key bootKey, jobs []job, out io.Writer) error {
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
	flags.exposeds = append(flags.exposeds, t.bins)
	o, err := flags.options(t.ctx)
	if err != nil {
		return err
	}
	var v *vm.VM
	again := -1 // the job that runs once more
	for i := 0; i < len(jobs); i++ {
		j := jobs[i]
		if v == nil {
			if v, err = vm.Start(t.ctx, o); err != nil {
				return err
			}
			t.count(&t.boots)
			if t.flags.keep {
				v.Keep()
			}
		}
		fmt.Fprintf(out, "=== %s\n", suite.Short(j.group, modulePath))
		rs, err := j.do(v, o, out)
		faults := v.Faults()
		if why := corrupted(faults, err); why != nil && again != i && t.ctx.Err() == nil {
			fmt.Fprintf(out, "testbed: the emulator corrupted the machine, which counts for nothing; once more in another one: %s: %s\n",
				suite.Short(j.group, modulePath), firstLine(why.Error()))
			v.Kill()
			v, again = nil, i
			t.count(&t.corrupted)
			i--
			continue
		}
		if err == nil {
			if err = faults; err != nil {
				fmt.Fprintf(out, "%v\n", err)
				t.problem(j, err)
				v.Close()
				v = nil
			}
		} else {
			if t.ctx.Err() != nil {
				v.Kill()
				return t.ctx.Err()
			}
			// A job that ended with an error and no failed test must not
			// look like one that had nothing to say.
			if !anyFailed(rs) {
				fmt.Fprintf(out, "%v\n", err)
				t.problem(j, err)
			}
			v.Kill()
			v = nil
		}
		t.add(rs...)
	}
	if v != nil {
		if err := t.leaks(v, o); err != nil {
			fmt.Fprintf(out, "%v\n", err)
			t.complain("after the last test: " + firstLine(err.Error()))
		}
		if err := v.Close(); err != nil {
			fmt.Fprintf(out, "%v\n", err)
			t.complain("after the last test: " + firstLine(err.Error()))
		}
	}
	return nil
}

// corrupted is the error, if any, that is the emulator's.
func corrupted(errs ...error) error {
	if i := slices.IndexFunc(errs, vm.Corrupted); i >= 0 {
		return errs[i]
	}
	return nil
}

// findLeaks makes the kernel look for memory that nothing points to. It is
// silent about what is younger than five seconds, and for once about what a
// register still points to. It prints what was found.
const findLeaks = `cd /sys/kernel/debug && sleep 6 && echo scan >kmemleak && sleep 6 && echo scan >kmemleak && cat kmemleak`

// leaks reports memory that a kernel with CONFIG_DEBUG_KMEMLEAK has lost.
func (t *testRun) leaks(v *vm.VM, o vm.Options) error {
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

// skips says whether a test was named by -skip.
func (t *testRun) skips(group, name string) bool {
	return t.skip != nil && t.skip.MatchString(group+" "+name)
}

// goEnv is the environment in which the go command builds for the guest.
func (t *testRun) goEnv() []string { return t.opts.Tree.Arch.Environ(t.opts.Tree.Userland()) }

// addPackages builds the packages' test binaries and adds a job for each.
func (t *testRun) addPackages(patterns []string, re *regexp.Regexp) error {
	pkgs, err := gotest.Find(t.ctx, t.opts.Tree.Root, patterns, re, t.goEnv())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(t.bins, 0o755); err != nil {
		return err
	}
	for _, p := range pkgs {
		for i, k := range kinds {
			order, machines := []string{}, map[string][]gotest.Test{}
			for _, n := range p.Tests {
				if kindOf(n.Name) != i || !n.RunsOn(t.opts.Kernel.Series) || t.skips(suite.Short(p.Path, modulePath), n.Name) {
					continue
				}
				on := n.On(t.opts.Tree.Arch.Name)
				for _, m := range on {
					if len(on) > 1 && t.skips(suite.Short(p.Path, modulePath), onMachine(n.Name, m, "")) {
						continue
					}
					if machines[m] == nil {
						order = append(order, m)
					}
					machines[m] = append(machines[m], n)
				}
			}
			if len(order) == 0 {
				continue
			}
			bin, err := t.build(p, t.race || k.race && t.opts.Tree.Arch.Race)
			if err != nil {
				return err
			}
			for _, m := range order {
				t.addJob(p, bin, m, k, machines[m])
			}
		}
	}
	return nil
}

// kindOf is the index in kinds of a test.
func kindOf(name string) int {
	return slices.IndexFunc(kinds, func(k kind) bool { return k.re.MatchString(name) })
}

// build builds a package's test binary. A failure of that is a result, and the
// binary's name is empty then.
func (t *testRun) build(p gotest.Package, race bool) (string, error) {
	bin := filepath.Join(t.bins, strings.ReplaceAll(suite.Short(p.Path, modulePath), "/", "-")+".test")
	var flags []string
	if race {
		flags = append(flags, "-race")
		bin += "-race"
	}
	err := once(bin, t.shared, func() error { return p.Build(t.ctx, t.opts.Tree.Root, bin, flags, t.goEnv()) })
	if err == nil || t.ctx.Err() != nil {
		return bin, t.ctx.Err()
	}
	fmt.Printf("=== %s\n%v\n", suite.Short(p.Path, modulePath), err)
	t.summary.Add(suite.Result{Group: p.Path, Name: "(build)", State: suite.Failed, Output: err.Error()})
	return "", nil
}

// several says whether a job needs more processors than -cpus gives it: a race does,
// and a shell test, whose programs poll without a pause unless it says otherwise.
func (t *testRun) several(needs bool) bool { return needs && t.flags.cpus != 0 }

// addJob adds a job for some of a package's tests on one machine.
func (t *testRun) addJob(p gotest.Package, bin, machine string, k kind, tests []gotest.Test) {
	if bin == "" {
		return
	}
	var names []string
	several := map[string]bool{}
	for _, n := range tests {
		names = append(names, n.Name)
		several[n.Name] = len(n.On(t.opts.Tree.Arch.Name)) > 1
	}
	selection := "^(" + strings.Join(names, "|") + ")$"
	if _, sub, ok := strings.Cut(t.run, "/"); ok {
		selection += "/" + sub
	}
	t.jobs = append(t.jobs, job{
		group: p.Path, machine: machine, stock: k.stock, rereg: k.rereg, several: t.several(k.race), last: k.last,
		do: func(v *vm.VM, o vm.Options, out io.Writer) ([]suite.Result, error) {
			rs, err := t.goTest(v, o, p, bin, selection, out)
			for i := range rs {
				if top, rest, _ := strings.Cut(rs[i].Name, "/"); several[top] {
					rs[i].Name = onMachine(top, machine, rest)
				}
			}
			return rs, err
		},
	})
}

// onMachine is the name in lists of a test that runs on several machines.
func onMachine(test, machine, subtest string) string {
	if machine == "" {
		machine = "default"
	}
	name := test + "@" + machine
	if subtest != "" {
		name += "/" + subtest
	}
	return name
}

// goTest runs one package's binary and reads its results.
func (t *testRun) goTest(v *vm.VM, o vm.Options, p gotest.Package, bin, selection string, live io.Writer) ([]suite.Result, error) {
	convert := exec.CommandContext(t.ctx, "go", "tool", "test2json", "-p", p.Path, "-t")
	in, err := convert.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := convert.StdoutPipe()
	if err != nil {
		return nil, err
	}
	convert.Stderr = live
	if err := convert.Start(); err != nil {
		return nil, err
	}
	c := &gotest.Collector{Package: p.Path, Live: live, Verbose: t.flags.verbose}
	read := make(chan error, 1)
	go func() { read <- c.Read(out) }()

	var stderr bytes.Buffer
	limit := t.flags.limit(t.flags.timeout)
	status, runErr := v.Run(t.ctx, vm.Cmd{
		Args: lazily(bin, "-test.v=test2json", "-test.run="+selection, "-test.timeout="+limit.String(), "-test.paniconexit0"),
		Dir:  p.Dir, Env: append(testEnviron(o), "PWD="+p.Dir),
		Stdout: in, Stderr: io.MultiWriter(&stderr, in), Timeout: limit + testGrace,
	})
	in.Close()
	if err := <-read; err != nil {
		return nil, err
	}
	if err := convert.Wait(); err != nil {
		return nil, fmt.Errorf("go tool test2json: %w", err)
	}
	failure := ""
	switch {
	case runErr != nil:
		failure = runErr.Error()
		fmt.Fprintf(live, "%v\n", runErr)
	case status != 0:
		failure = fmt.Sprintf("the test binary ended with status %d", status)
	}
	return c.Results(failure), runErr
}

// timerSlack is how much later than asked for a test's sleeps may end. Go's runtime has a
// thread that sleeps for 20 us at a time while others are in system calls: each time the
// emulator stops a processor to tell it that time has passed. Without the slack that was a
// third of the time of many tests.
const timerSlack = 4 * time.Millisecond

// lazily is a command line that has timerSlack, as all that it starts.
func lazily(args ...string) []string {
	return append([]string{"/bin/sh", "-c", fmt.Sprintf(`echo %d >/proc/self/timerslack_ns; exec "$0" "$@"`, timerSlack.Nanoseconds())}, args...)
}

// testEnviron is environ for Go tests. Emulated, up to a fifth of their time is the
// garbage collector's; a test that means the collector calls it.
func testEnviron(o vm.Options) []string {
	return append([]string{"GOGC=400"}, environ(o)...)
}

// addScripts adds a job for each shell test.
func (t *testRun) addScripts(re *regexp.Regexp) error {
	scripts, err := suite.Scripts(filepath.Join(t.opts.Tree.Root, "testbed", "peers"))
	if err != nil {
		return err
	}
	for _, s := range scripts {
		if !re.MatchString(s.Name) || !s.RunsOn(t.opts.Kernel.Series) || t.skips(suite.ScriptGroup, s.Name) {
			continue
		}
		t.jobs = append(t.jobs, job{
			group: suite.ScriptGroup + " " + s.Name, machine: s.Machine, stock: s.Stock, rereg: s.Rereg, several: t.several(!s.One),
			do: func(v *vm.VM, o vm.Options, out io.Writer) ([]suite.Result, error) { return t.script(v, o, s, out) },
		})
	}
	return nil
}

// script runs a shell test.
func (t *testRun) script(v *vm.VM, o vm.Options, s suite.Script, live io.Writer) ([]suite.Result, error) {
	var out bytes.Buffer
	var w io.Writer = &out
	if t.flags.verbose {
		w = io.MultiWriter(&out, live)
	}
	limit := scriptTimeout
	if s.Timeout > 0 {
		limit = s.Timeout
	}
	sync := &syncWriter{w: w}
	start := time.Now()
	peer := ""
	if s.Peer != "" {
		peer = "exec /bin/bash " + filepath.Join(filepath.Dir(s.File), s.Peer)
	}
	status, err := runWithPeer(t.ctx, v, o, vm.Cmd{
		Args: lazily("/bin/bash", s.File), Dir: filepath.Dir(s.File), Env: environ(o),
		Stdout: sync, Stderr: sync, Timeout: t.flags.limit(limit),
	}, peer)
	r := suite.Result{Group: suite.ScriptGroup, Name: s.Name, Elapsed: time.Since(start), Output: out.String()}
	switch {
	case err != nil:
		r.State = suite.Failed
		r.Output += err.Error() + "\n"
	case status == 0:
		r.State = suite.Passed
	case status == suite.SkipStatus:
		r.State = suite.Skipped
	default:
		r.State = suite.Failed
		r.Output += fmt.Sprintf("the script ended with status %d\n", status)
	}
	if r.State == suite.Failed {
		fmt.Fprintf(live, "--- FAIL: %s (%.2fs)\n%s", s.Name, r.Elapsed.Seconds(), r.Output)
	} else {
		fmt.Fprintf(live, "--- %s: %s (%.2fs)\n", map[suite.State]string{suite.Passed: "PASS", suite.Skipped: "SKIP"}[r.State], s.Name, r.Elapsed.Seconds())
	}
	return []suite.Result{r}, err
}
