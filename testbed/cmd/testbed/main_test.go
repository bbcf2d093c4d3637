// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/testbed/arch"
	"github.com/gpurdma/gpurdma/testbed/klog"
	"github.com/gpurdma/gpurdma/testbed/layout"
	"github.com/gpurdma/gpurdma/testbed/vm"
)

// TestOutcome checks the exit statuses: the command's own when, and only when,
// there is nothing else to report.
func TestOutcome(t *testing.T) {
	kernelFault := &vm.KernelError{Node: "vm", Reports: []klog.Report{{Title: "BUG: x", Lines: []string{"BUG: x"}}}}
	for name, c := range map[string]struct {
		status int
		err    error
		want   int
	}{
		"success":             {0, nil, 0},
		"failure":             {7, nil, 7},
		"fault after success": {0, kernelFault, statusKernel},
		"fault after failure": {7, fmt.Errorf("close: %w", kernelFault), statusKernel},
		"hang":                {0, &vm.HangError{Node: "vm", What: "x"}, statusWatchdog},
		"death":               {0, &vm.DeathError{Node: "vm", Stage: "while booting"}, statusTestbed},
		"interrupt":           {0, context.Canceled, statusInterrupted},
		"else":                {0, errors.New("no disk"), statusTestbed},
		"fault and hang":      {0, errors.Join(&vm.HangError{}, kernelFault), statusKernel},
	} {
		status, err := outcome(c.status, c.err)
		if status != c.want || (err == nil) != (c.err == nil) {
			t.Errorf("%s: got %d, %v; want %d", name, status, err, c.want)
		}
	}
	if _, err := outcome(7, kernelFault); !strings.Contains(err.Error(), "status 7") || !strings.Contains(err.Error(), "BUG: x") {
		t.Errorf("the error lacks the status or the fault: %v", err)
	}
}

func TestEnviron(t *testing.T) {
	t.Setenv("GPURDMA_KERNEL", "9.9")
	t.Setenv("GPURDMA_LEVEL", "3")
	t.Setenv("GORACE", "halt_on_error=1")
	t.Setenv("SECRET", "x")
	o := vm.Options{Tree: layout.Tree{Root: "/p", Build: "/p/build"}}
	o.Kernel.Series, o.Machine.Name = "6.1", "default"
	has := map[string]bool{}
	for _, e := range environ(o) {
		has[e] = true
	}
	for _, want := range []string{"GPURDMA_TESTBED=1", "GPURDMA_KERNEL=6.1", "GPURDMA_MACHINE=default", "GPURDMA_LEVEL=3", "GORACE=halt_on_error=1"} {
		if !has[want] {
			t.Errorf("%s is missing", want)
		}
	}
	for _, not := range []string{"GPURDMA_KERNEL=9.9", "SECRET=x", "GPURDMA_STOCK_RXE=1"} {
		if has[not] {
			t.Errorf("%s reaches the guest", not)
		}
	}
	if has["GPURDMA_COUNT=1"] {
		t.Error("clocks of time are said to count instructions")
	}
	o.Modules, o.Accel = vm.Stock, "icount"
	if env := strings.Join(environ(o), "\n"); !strings.Contains(env, "GPURDMA_COUNT=1") || !strings.Contains(env, "GPURDMA_STOCK_RXE=1") || !strings.Contains(env, "PATH=/p/build/bin:") {
		t.Errorf("environment:\n%s", env)
	}
}

// A caller's GOGC, which comes later, is the one that counts.
func TestTestEnviron(t *testing.T) {
	var o vm.Options
	if got := testEnviron(o); got[0] != "GOGC=400" || strings.Contains(strings.Join(got[1:], "\n"), "GOGC=") {
		t.Errorf("%q", got)
	}
	t.Setenv("GOGC", "50")
	if got := testEnviron(o); !slices.Contains(got[1:], "GOGC=50") {
		t.Errorf("%q", got)
	}
}

// A job that comes last runs after all others of its machine, wherever it is in the list.
func TestLast(t *testing.T) {
	order, byKey := boots([]job{{group: "a", last: true}, {group: "b"}, {group: "c", machine: "pair"}, {group: "d"}})
	var names []string
	for _, j := range byKey[bootKey{}] {
		names = append(names, j.group)
	}
	if got := strings.Join(names, " "); got != "b d a" || len(order) != 2 || len(byKey[bootKey{machine: "pair"}]) != 1 {
		t.Errorf("%q, %v", got, order)
	}
	if k := kinds[kindOf("TestVMLastLockdown")]; !k.last || kinds[kindOf("TestVMLoss")].last {
		t.Error("which tests come last")
	}
}

// A newer series goes by the list of the one before it until it has its own.
func TestRequiredOn(t *testing.T) {
	tree := layout.Tree{Root: t.TempDir(), Arch: arch.Default}
	put := func(series string) {
		file := tree.Required(series)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("of "+series+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("6.12")
	if list, err := requiredOn(tree, "7.2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("only of 6.12: got %v, %v", list, err)
	}
	put("7.2")
	put("7.10")
	for series, want := range map[string]string{"6.12": "6.12", "7.2": "7.2", "7.3": "7.2", "7.10": "7.10", "8.0": "7.10"} {
		if list, err := requiredOn(tree, series); err != nil || len(list) != 1 || list[0].Name != want {
			t.Errorf("%s: got %v, %v, want that of %s", series, list, err, want)
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	if got := dispatch(context.Background(), []string{"nonesuch"}); got != statusTestbed {
		t.Errorf("got %d", got)
	}
	if got := dispatch(context.Background(), []string{"run"}); got != statusTestbed {
		t.Errorf("run without a command: got %d", got)
	}
	if got := dispatch(context.Background(), []string{"help"}); got != 0 {
		t.Errorf("help: got %d", got)
	}
}

// TestPrefixWriter checks that lines stay whole while other writers write, and that the
// last one is not lost.
func TestPrefixWriter(t *testing.T) {
	var out strings.Builder
	var mu sync.Mutex
	a := &prefixWriter{mu: &mu, w: &out, prefix: "a: "}
	b := &prefixWriter{mu: &mu, w: &out, prefix: "b: "}
	fmt.Fprint(a, "one ")
	fmt.Fprint(b, "x\n")
	fmt.Fprint(a, "line\nand another\nand")
	a.Flush()
	b.Flush()
	if want := "b: x\na: one line\na: and another\na: and\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
