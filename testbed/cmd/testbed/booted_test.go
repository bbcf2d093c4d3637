// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurdma/gpurdma/testbed/kernel"
	"github.com/gpurdma/gpurdma/testbed/klog"
	"github.com/gpurdma/gpurdma/testbed/suite"
	"github.com/gpurdma/gpurdma/testbed/vm"
)

// pretended is a booted machine that does nothing, and how it ended.
type pretended struct {
	faults error
	ended  string
}

func (p *pretended) Run(context.Context, vm.Cmd) (int, error) { return 0, nil }
func (p *pretended) Signal(string, syscall.Signal) error      { return nil }
func (p *pretended) Faults() error                            { return p.faults }
func (p *pretended) Keep()                                    {}
func (p *pretended) Kill()                                    { p.ended = "killed" }
func (p *pretended) Close() error                             { p.ended = "closed"; return p.faults }

// After a fault of the kernel the job fails, and the others get a new machine. After a fault of the emulator the
// job runs once more, and only its second run counts.
func TestWork(t *testing.T) {
	emulator := &vm.DeathError{Node: "a", QEMU: "iotlb_to_section: Assertion `index < sections' failed."}
	fault := &vm.KernelError{Node: "a", Reports: []klog.Report{{Title: "BUG: KASAN: use-after-free", Lines: []string{"it is freed"}}}}
	died := &vm.DeathError{Node: "a", Stage: "in a test"}
	type attempt struct {
		results []suite.Result
		faults  error // of the machine
		err     error // of the job
	}
	passed := func(name string) attempt { return attempt{results: []suite.Result{{Name: name, State: suite.Passed}}} }
	failed := []suite.Result{{Name: "TestFailed", State: suite.Failed}}
	for _, c := range []struct {
		name     string
		attempts []attempt // of the first job, which is the only one that has several
		machines string
		results  string
		problems string
		again    int // runs that count for nothing
	}{
		{"all pass", []attempt{passed("TestA")}, "closed", "TestA TestNext", "", 0},
		{"the kernel has a fault", []attempt{{passed("TestA").results, fault, nil}}, "closed closed", "TestA TestNext", "first: the kernel of node a reported 1 fault(s), first: BUG: KASAN: use-after-free", 0},
		{"the machine dies", []attempt{{nil, died, died}}, "killed closed", "TestNext", "first: node a: the machine ended in a test", 0},
		{"a test fails, and the machine with it", []attempt{{failed, died, died}}, "killed closed", "TestFailed TestNext", "", 0},
		{"the emulator fails", []attempt{{failed, nil, emulator}, passed("TestA")}, "killed closed", "TestA TestNext", "", 1},
		{"the emulator fails, and the job knows nothing of it", []attempt{{passed("TestNot").results, emulator, nil}, passed("TestA")}, "killed closed", "TestA TestNext", "", 1},
		{"the emulator fails twice", []attempt{{nil, nil, emulator}, {nil, nil, emulator}}, "killed killed closed", "TestNext", "first: node a: the machine ended ; QEMU said: iotlb_to_section", 1},
		{"the emulator fails, and then the kernel", []attempt{{nil, emulator, nil}, {passed("TestA").results, fault, nil}}, "killed closed closed", "TestA TestNext", "first: the kernel of node a reported 1 fault(s)", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := vm.Options{Kernel: kernel.Kernel{Dir: t.TempDir(), Release: "6.12"}}
			if err := os.MkdirAll(filepath.Dir(o.Kernel.Config()), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(o.Kernel.Config(), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			var machines []*pretended
			start := func() (booted, error) {
				machines = append(machines, &pretended{})
				return machines[len(machines)-1], nil
			}
			rest := c.attempts
			run := &testRun{ctx: t.Context()}
			err := run.work(&queue{jobs: []job{
				{group: modulePath + "/first", do: func(v booted, _ vm.Options, _ io.Writer) ([]suite.Result, error) {
					if len(rest) == 0 {
						return nil, errors.New("it ran too often")
					}
					a := rest[0]
					rest = rest[1:]
					v.(*pretended).faults = a.faults
					return a.results, a.err
				}},
				{group: modulePath + "/next", do: func(booted, vm.Options, io.Writer) ([]suite.Result, error) {
					return passed("TestNext").results, nil
				}},
			}}, io.Discard, start, o)
			if err != nil || len(rest) != 0 {
				t.Fatalf("%v, %d attempts are left", err, len(rest))
			}
			var ends, results []string
			for _, m := range machines {
				ends = append(ends, m.ended)
			}
			for _, r := range run.summary.Results {
				results = append(results, r.Name)
			}
			if got := strings.Join(ends, " "); got != c.machines {
				t.Errorf("machines: %s, want %s", got, c.machines)
			}
			if got := strings.Join(results, " "); got != c.results {
				t.Errorf("results: %s, want %s", got, c.results)
			}
			if got := strings.Join(run.summary.Problems, "\n"); got != c.problems && (c.problems == "" || !strings.HasPrefix(got, c.problems)) {
				t.Errorf("problems: %s, want %s", got, c.problems)
			}
			if run.boots != len(machines) || run.corrupted != c.again {
				t.Errorf("%d boots, %d of them corrupted", run.boots, run.corrupted)
			}
		})
	}
}

// A machine that does not boot, and the end of the run, end the work: the jobs that are left do not run.
func TestWorkEnds(t *testing.T) {
	var ran []string
	do := func(name string, err error) job {
		return job{group: name, do: func(booted, vm.Options, io.Writer) ([]suite.Result, error) {
			ran = append(ran, name)
			return nil, err
		}}
	}
	boot := errors.New("it does not boot")
	run := &testRun{ctx: t.Context()}
	err := run.work(&queue{jobs: []job{do("a", nil)}}, io.Discard, func() (booted, error) { return nil, boot }, vm.Options{})
	if !errors.Is(err, boot) || len(ran) > 0 {
		t.Errorf("%v, ran %q", err, ran)
	}

	ctx, cancel := context.WithCancel(t.Context())
	m := &pretended{}
	last := do("a", fmt.Errorf("run: %w", context.Canceled))
	stop := last.do
	last.do = func(v booted, o vm.Options, out io.Writer) ([]suite.Result, error) {
		cancel()
		return stop(v, o, out)
	}
	run = &testRun{ctx: ctx}
	err = run.work(&queue{jobs: []job{last, do("b", nil)}}, io.Discard, func() (booted, error) { return m, nil }, vm.Options{})
	if !errors.Is(err, context.Canceled) || !slices.Equal(ran, []string{"a"}) || m.ended != "killed" || len(run.summary.Problems) > 0 {
		t.Errorf("%v, ran %q, machine %s, problems %q", err, ran, m.ended, run.summary.Problems)
	}
}
