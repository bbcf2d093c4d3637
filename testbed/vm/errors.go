// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/gpurdma/gpurdma/testbed/klog"
)

// KernelError says that the guest's kernel reported faults.
type KernelError struct {
	Node     string
	Emulated bool // by QEMU alone
	Reports  []klog.Report
	LogFile  string
}

func (e *KernelError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the kernel of node %s reported %d fault(s), first: %s", e.Node, len(e.Reports), e.Reports[0].Title)
	for _, r := range e.Reports {
		b.WriteString("\n")
		for _, l := range r.Lines {
			b.WriteString("  | " + l + "\n")
		}
	}
	fmt.Fprintf(&b, "whole log: %s", e.LogFile)
	return b.String()
}

// HangError says that the watchdog ended a run.
type HangError struct {
	Node    string
	What    string   // what did not happen in time
	Tail    []string // the end of the kernel's log
	LogFile string
}

func (e *HangError) Error() string {
	return withTail(fmt.Sprintf("node %s: %s", e.Node, e.What), e.Tail, e.LogFile)
}

// DeathError says that a machine ended by itself.
type DeathError struct {
	Node    string
	Stage   string
	QEMU    string // what QEMU printed
	Tail    []string
	LogFile string
}

func (e *DeathError) Error() string {
	s := fmt.Sprintf("node %s: the machine ended %s", e.Node, e.Stage)
	if e.QEMU != "" {
		s += "; QEMU said: " + e.QEMU
	}
	return withTail(s, e.Tail, e.LogFile)
}

func withTail(s string, tail []string, file string) string {
	var b strings.Builder
	b.WriteString(s)
	if len(tail) > 0 {
		b.WriteString("\nend of the kernel's log:\n")
		for _, l := range tail {
			b.WriteString("  | " + l + "\n")
		}
	} else {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "whole log: %s", file)
	return b.String()
}

// staleBreakpoint is the title of a report of a breakpoint that nobody set.
const staleBreakpoint = "Oops: int3: "

// executed is what a report says of the code: the instruction that comes next is
// marked, and what is before it was executed.
var executed = regexp.MustCompile(`Code: .*\b([0-9a-f]{2}) <[0-9a-f]{2}>`)

// Corrupted reports a machine that died of a fault of QEMU's, not of its kernel's.
// While a kernel patches its own code, a breakpoint stands there for a moment; with
// several processors QEMU before 8.1 can keep a translation of it (accel/tcg locks
// pages before it translates since then). The processor that runs it has the
// kernel die of a breakpoint, and the kernel's report shows that memory has none
// there.
func Corrupted(err error) bool {
	var k *KernelError
	if !errors.As(err, &k) || !k.Emulated || !strings.HasPrefix(k.Reports[0].Title, staleBreakpoint) {
		return false
	}
	for _, line := range k.Reports[0].Lines {
		if m := executed.FindStringSubmatch(line); m != nil {
			return m[1] != "cc"
		}
	}
	return false
}

// title is the first fault that an error is about.
func title(err error) string {
	var k *KernelError
	if errors.As(err, &k) {
		return k.Reports[0].Title
	}
	return err.Error()
}
