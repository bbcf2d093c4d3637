// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/testbed/klog"
)

// KernelError says that the guest's kernel reported faults.
type KernelError struct {
	Node    string
	Reports []klog.Report
	LogFile string
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

// errEmulation marks a boot that died of the emulator's own fault.
var errEmulation = errors.New("fault of the emulator")

// staleBreakpoint is the title of a report about it.
const staleBreakpoint = "Oops: int3: "

// emulationFault wraps the death of a kernel that had not started init yet,
// under emulation, of a breakpoint instruction.
func emulationFault(err error, accel string) error {
	var k *KernelError
	if accel == "tcg" && errors.As(err, &k) && strings.HasPrefix(k.Reports[0].Title, staleBreakpoint) {
		return fmt.Errorf("%w: %w", errEmulation, err)
	}
	return err
}

// title is the first fault that an error is about.
func title(err error) string {
	var k *KernelError
	if errors.As(err, &k) {
		return k.Reports[0].Title
	}
	return err.Error()
}
