// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/testbed/gotest"
	"github.com/gpurdma/gpurdma/testbed/suite"
	"github.com/gpurdma/gpurdma/testbed/vm"
)

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
		do: func(v booted, o vm.Options, out io.Writer) ([]suite.Result, error) {
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
func (t *testRun) goTest(v booted, o vm.Options, p gotest.Package, bin, selection string, live io.Writer) ([]suite.Result, error) {
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
			do: func(v booted, o vm.Options, out io.Writer) ([]suite.Result, error) { return t.script(v, o, s, out) },
		})
	}
	return nil
}

// script runs a shell test.
func (t *testRun) script(v booted, o vm.Options, s suite.Script, live io.Writer) ([]suite.Result, error) {
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
