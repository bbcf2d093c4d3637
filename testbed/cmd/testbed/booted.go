// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"syscall"

	"github.com/gpurdma/gpurdma/testbed/suite"
	"github.com/gpurdma/gpurdma/testbed/vm"
)

// booted is what jobs need of a booted machine. *vm.VM implements it.
type booted interface {
	Run(ctx context.Context, c vm.Cmd) (int, error)
	Signal(node string, sig syscall.Signal) error
	Faults() error
	Keep()
	Kill()
	Close() error
}

// work runs the jobs of a queue in one machine, until none is left. A machine that died, hung or whose
// kernel reported a fault fails the job it happened in; the rest get a new one. A job in
// which the emulator corrupted the kernel is run once more.
func (t *testRun) work(q *queue, out io.Writer, start func() (booted, error), o vm.Options) error {
	var v booted
	again := false // the job has run, in a machine that the emulator corrupted
	for j, ok := q.next(); ok; {
		if v == nil {
			m, err := start()
			if err != nil {
				return err
			}
			v = m
			t.count(&t.boots)
			if t.flags.keep {
				v.Keep()
			}
		}
		fmt.Fprintf(out, "=== %s\n", suite.Short(j.group, modulePath))
		rs, err := j.do(v, o, out)
		faults := v.Faults()
		if why := corrupted(faults, err); why != nil && !again && t.ctx.Err() == nil {
			fmt.Fprintf(out, "%s: %s: %s\n", onceMore, suite.Short(j.group, modulePath), firstLine(why.Error()))
			v.Kill()
			v, again = nil, true
			t.count(&t.corrupted)
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
		again = false
		j, ok = q.next()
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
