// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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

// BootError says that the init of a kernel that is emulated did not report. Seen with
// 6.12 on a busy host: RCU stalled, most likely by a clock that ran too fast
// (counterRate).
type BootError struct{ Err error } // KernelError or HangError

func (e *BootError) Error() string { return "while it booted, " + e.Err.Error() }
func (e *BootError) Unwrap() error { return e.Err }

// unborn reports whether err has BootErrors only, of one node or several.
func unborn(err error) bool {
	if list, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // each of them counts
		for _, e := range list.Unwrap() {
			if !unborn(e) {
				return false
			}
		}
		return true
	}
	var b *BootError
	return errors.As(err, &b)
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

// staleBreakpoint is the title of a report of a breakpoint that is not in memory.
const staleBreakpoint = "Oops: int3: "

// executed matches the code in a report. The next instruction is marked; the bytes
// before it were executed.
var executed = regexp.MustCompile(`Code: .*\b([0-9a-f]{2}) <[0-9a-f]{2}>`)

// flagsOf matches the flags of the interrupted code in a report.
var flagsOf = regexp.MustCompile(`\bEFLAGS: ([0-9a-f]{8,16})\b`)

// noFlags are the bits of the flags that are 0 on every processor: 3, 5, 15 and from
// 22 on (Intel's manual, volume 1, section 3.4.3).
const noFlags = 1<<3 | 1<<5 | 1<<15 | ^uint64(1<<22-1)

// Corrupted reports whether a machine died of a fault of QEMU's and not of its kernel's:
// the kernel's report then shows a state that no processor can have.
//
// While a kernel patches its own code, a breakpoint stands there for a moment; with
// several processors QEMU before 8.1 can keep a translation of it (accel/tcg locks
// pages before it translates since then). On the processor that runs it the
// kernel dies of a breakpoint, and the kernel's report shows that memory has none
// there.
//
// An interrupt after CMPXCHG16B, by which the kernel takes memory from its slabs, can
// find flags that are some other number (seen with QEMU 7.2, early while kernels
// boot). They may say that the processor is in virtual 8086 mode, or that what was
// exchanged was not.
//
// And QEMU ends where it finds its own tables wrong: iotlb_to_section (seen with QEMU
// 10.0, while two processors of a busy host boot).
//
// A processor that has nothing to do can lose its timer: it sleeps until another one finds that for a minute no
// timer of it has fired (seen with QEMU 10.0, where another processor of a busy host has just moved the BARs of
// a device).
func Corrupted(err error) bool {
	var d *DeathError
	if errors.As(err, &d) {
		return assertion.MatchString(d.QEMU)
	}
	var k *KernelError
	if !errors.As(err, &k) || !k.Emulated {
		return false
	}
	if lostTimer(k.Reports) {
		return true
	}
	first := k.Reports[0]
	if m := firstMatch(flagsOf, first.Lines); m != "" {
		if flags, err := strconv.ParseUint(m, 16, 64); err == nil && flags&noFlags != 0 {
			return true
		}
	}
	before := firstMatch(executed, first.Lines)
	return strings.HasPrefix(first.Title, staleBreakpoint) && before != "" && before != "cc"
}

// These match reports of a processor whose timer has not fired, and of an idle one.
var (
	noTimer   = regexp.MustCompile(`rcu: \s*Possible timer handling issue on cpu=(\d+) `)
	backtrace = regexp.MustCompile(`NMI backtrace for cpu (\d+)`)
	idle      = regexp.MustCompile(` default_idle\+`)
)

// lostTimer reports whether all reports are of RCU, and the first is of a processor that was idle, and whose
// timer had not fired.
func lostTimer(all []klog.Report) bool {
	var lines []string
	for _, r := range all {
		if !strings.HasPrefix(r.Title, "rcu: ") {
			return false
		}
		lines = append(lines, r.Lines...)
	}
	at := firstMatch(noTimer, lines)
	if at == "" || firstMatch(backtrace, lines) != at {
		return false
	}
	return slices.ContainsFunc(lines, idle.MatchString)
}

// assertion matches what QEMU prints when an assertion in it fails.
var assertion = regexp.MustCompile("Assertion `.*' failed")

// firstMatch is what re's group matches in the first line that it does, or "".
func firstMatch(re *regexp.Regexp, lines []string) string {
	for _, line := range lines {
		if m := re.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	return ""
}

// title is the first fault that an error is about, or what QEMU said last.
func title(err error) string {
	var k *KernelError
	if errors.As(err, &k) {
		return k.Reports[0].Title
	}
	var d *DeathError
	if errors.As(err, &d) {
		return d.QEMU[strings.LastIndex(d.QEMU, "\n")+1:]
	}
	return err.Error()
}
