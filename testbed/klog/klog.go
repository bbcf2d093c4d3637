// SPDX-License-Identifier: Apache-2.0

package klog

import (
	"regexp"
	"slices"
	"strings"
)

// Report is one fault with the lines that the kernel printed about it.
type Report struct {
	Title string   // the line that names the fault, without its timestamp
	Lines []string // the excerpt
}

// titles match the lines that name a fault, after the timestamp. The texts
// are those of lib/bug.c, kernel/panic.c, kernel/locking/lockdep.c,
// kernel/hung_task.c, kernel/watchdog.c, kernel/rcu/tree_stall.h,
// lib/refcount.c, mm/kasan/report.c, mm/kmemleak.c, mm/oom_kill.c,
// lib/ubsan.c, kernel/dma/debug.c and arch/x86.
var titles = regexp.MustCompile(strings.Join([]string{
	`^(watchdog: )?BUG: `, // null pointers, KASAN, sleeping while atomic, soft lockup, bad page state
	`^kernel BUG at `,
	`^WARNING: `, // WARN and lockdep
	`^Oops: `,
	`^Oops - `,
	`^general protection fault[,:]`, // in a program, the line starts with "traps:"
	`^(double fault|invalid opcode|stack segment|divide error): `,
	`^Unable to handle kernel `,
	`^Kernel panic - not syncing`,
	`^refcount_t: `,
	`^INFO: task .* blocked for more than `,
	`^INFO: (possible|trying to register non-static key|inconsistent)`, // lockdep of older kernels
	`^(rcu: )?INFO: .*detected.* stall`,
	`^rcu: .*kthread .*starved`,
	`^(NMI )?(watchdog: )?Watchdog detected hard LOCKUP`,
	`^UBSAN: `,
	`^list_(add|del) corruption`,
	`^kmemleak: \d+ new suspected memory leaks`,
	`^unregister_netdevice: waiting for `, // a reference to a network device leaked
	`^DEBUG_LOCKS_WARN_ON`,
	`^ODEBUG: `,
	`^DMA-API: .*: (device driver|cacheline tracking|mapping sg segment)`,
	`^(Memory cgroup out of memory|Out of memory)[^:]*: Killed process`,
}, "|"))

// stamp is what precedes a line's text: the level, the timestamp, and the
// caller where CONFIG_PRINTK_CALLER is set.
var stamp = regexp.MustCompile(`^(<\d+>)?\[ *\d+\.\d+\](\[ *[TC]\d+\])? ?`)

const (
	cutHere  = "------------[ cut here ]------------"
	endTrace = "---[ end trace "
	endPanic = "---[ end Kernel panic"

	// maxLines bounds an excerpt that has no end marker, such as a hung
	// task's.
	maxLines = 60
	// maxGap is how many lines of the warning's own text may stand between
	// the cut-here line and the title.
	maxGap = 5
)

// Scanner collects reports from a log that arrives in pieces. The zero value
// is ready to use.
type Scanner struct {
	// Allow are faults that a test provokes on purpose: a report whose
	// title matches one of them is dropped.
	Allow []*regexp.Regexp

	partial string
	cut     []string // from a cut-here line on, before its title
	open    *Report
	reports []Report
}

// Write implements io.Writer; it never fails.
func (s *Scanner) Write(p []byte) (int, error) {
	text := s.partial + string(p)
	for {
		line, rest, ok := strings.Cut(text, "\n")
		if !ok {
			s.partial = text
			return len(p), nil
		}
		s.line(strings.TrimRight(line, "\r"))
		text = rest
	}
}

// AllowFromHere allows further faults, in what is yet to come.
func (s *Scanner) AllowFromHere(faults ...*regexp.Regexp) {
	s.close()
	s.Allow = slices.Concat(s.Allow, faults)
}

// Reports returns what was found so far. The last report may still be
// growing.
func (s *Scanner) Reports() []Report {
	rs := append([]Report{}, s.reports...)
	if s.open != nil && !s.allowed(s.open.Title) {
		rs = append(rs, *s.open)
	}
	return rs
}

func (s *Scanner) line(line string) {
	text := stamp.ReplaceAllString(line, "")
	switch {
	case text == cutHere:
		s.close()
		s.cut = []string{line}

	case s.cut != nil && titles.MatchString(text):
		s.start(text, line)

	case s.cut != nil && len(s.cut) <= maxGap:
		// WARN(condition, "text") prints its text before the title.
		s.cut = append(s.cut, line)
		if strings.HasPrefix(text, endTrace) {
			s.start(stamp.ReplaceAllString(s.cut[1], ""), "")
			s.close()
		}

	case s.cut != nil:
		// A cut-here line is a fault, whatever follows it.
		s.start(stamp.ReplaceAllString(s.cut[1], ""), line)

	case titles.MatchString(text) && !s.continues(text):
		s.close()
		s.start(text, line)

	case s.open != nil:
		s.open.Lines = append(s.open.Lines, line)
		if strings.HasPrefix(text, endTrace) || strings.HasPrefix(text, endPanic) || len(s.open.Lines) >= maxLines {
			s.close()
		}
	}
}

// continues says whether a title belongs to the report that is open: a
// refcount warning names itself before the WARNING line, and the kernel
// follows "BUG: kernel NULL pointer dereference" with "Oops:", and a fatal
// oops with a panic. An oops is never part of a report that is allowed.
func (s *Scanner) continues(text string) bool {
	if s.open == nil {
		return false
	}
	if strings.HasPrefix(text, "WARNING: ") {
		return strings.HasSuffix(s.open.Lines[0], cutHere) && len(s.open.Lines) <= maxGap &&
			!strings.HasPrefix(s.open.Title, "WARNING: ")
	}
	follows := strings.HasPrefix(text, "Oops") || strings.HasPrefix(text, "Kernel panic") || strings.HasPrefix(text, "invalid opcode")
	return follows && !s.allowed(s.open.Title)
}

func (s *Scanner) start(title, line string) {
	s.open = &Report{Title: title, Lines: s.cut}
	if line != "" {
		s.open.Lines = append(s.open.Lines, line)
	}
	s.cut = nil
}

func (s *Scanner) close() {
	if s.open != nil && !s.allowed(s.open.Title) {
		s.reports = append(s.reports, *s.open)
	}
	s.open = nil
}

func (s *Scanner) allowed(title string) bool {
	for _, re := range s.Allow {
		if re.MatchString(title) {
			return true
		}
	}
	return false
}
