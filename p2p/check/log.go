// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Quiet adds a finding about a log without a line that the check looks for: a pass, or unknown if
// the kernel has overwritten older lines, because one of these may have been such a line.
func (l *Look) Quiet(log *machine.KernelLog, read string) {
	if log.Cut {
		l.Unknown("", log.At(), "%s; older lines are overwritten", read).SetAside().
			Fix("look through the journal, or give the kernel a larger log and look after the next start", "journalctl -k --grep 'DMAR|AMD-Vi|arm-smmu|P2PDMA|NVRM'", "")
		return
	}
	l.Pass("", log.At(), "%s", read)
}

// FaultedIn names the BAR of a GPU or NIC that has the address of an IOMMU's fault, in words that follow
// those of the line; "" if no BAR has it.
func FaultedIn(l *Look, line string) string {
	m := p2p.FaultAddress.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	at, err := strconv.ParseUint(m[1], 0, 64)
	if err != nil {
		return ""
	}
	for _, f := range l.Endpoints() {
		for _, bar := range f.BARs {
			if at >= bar.Start && at-bar.Start < bar.Size {
				return fmt.Sprintf("; the address is in BAR %d of %s", bar.Index, f.Name)
			}
		}
	}
	return ""
}

// LogLine is a line of the kernel's log, and the pattern that matches it.
type LogLine struct {
	Line    string
	Pattern p2p.Pattern
}

// shownLines is the number of lines that a check quotes.
const shownLines = 3

// LogLines returns the lines of the kernel's log that the check with this ID looks for: the latest line of each
// pattern, and three lines at most, the latest first. It ignores lines about other devices than the GPUs, the NICs
// and the ports above them.
func LogLines(l *Look, k *machine.KernelLog, check string) []LogLine {
	var out []LogLine
	seen := map[*regexp.Regexp]bool{}
	for _, line := range slices.Backward(k.Lines) {
		for _, p := range p2p.Patterns {
			if p.Check != check || !p.Match.MatchString(line) || !l.concerns(line) {
				continue
			}
			if !seen[p.Match] {
				seen[p.Match] = true
				out = append(out, LogLine{line, p})
			}
			break // a line matches one pattern
		}
		if len(out) == shownLines {
			break
		}
	}
	return out
}

// Contrary returns the line of the kernel's log that breaks the pair's link Log; "" if no line does.
func Contrary(p p2p.Pair) string {
	a := p.Verdict.Link(chain.Log)
	if a.State != chain.Breaks || len(a.Evidence) == 0 {
		return ""
	}
	return a.Evidence[len(a.Evidence)-1].Value
}

// Says reports whether the check with this ID looks for this line of the kernel's log: the first
// pattern that matches the line belongs to the check.
func Says(line, check string) bool {
	for _, p := range p2p.Patterns {
		if p.Match.MatchString(line) {
			return p.Check == check
		}
	}
	return false
}

// concerns reports whether a line names no PCI function, or one that the checks look at.
func (l *Look) concerns(line string) bool {
	names := p2p.PCIAddress.FindAllString(line, -1)
	if m := p2p.XidDevice.FindStringSubmatch(line); m != nil {
		names = append(names, m[1]+".0")
	}
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
		a, err := pciaddr.Parse(name)
		return err == nil && l.matter()[a]
	})
}

// matter returns the GPUs, the NICs, the ports above them and their host bridges. It gathers them once,
// because a log can have thousands of lines about errors.
func (l *Look) matter() map[pciaddr.Addr]bool {
	return Once(l, "functions that matter", func() map[pciaddr.Addr]bool {
		out := map[pciaddr.Addr]bool{}
		for _, f := range l.All() {
			out[f.PCI] = true
		}
		// A line about a host bridge names the first function below it.
		for _, f := range l.Endpoints() {
			if f.Err != nil {
				continue
			}
			h := l.Machine.HostBridge(l.Machine.Node(f.PCI))
			if h.Err == nil && !h.Empty {
				out[h.First.Addr] = true
			}
		}
		return out
	})
}

// Log returns the kernel's log, which it reads once.
func (l *Look) Log() *machine.KernelLog {
	return Once(l, "kernel log", l.Machine.KernelLog)
}
