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
// is ready to use. Where the kernel names the caller of each line, reports that
// several processors print at once do not mix.
type Scanner struct {
	// Allow are faults that a test provokes on purpose: a report whose
	// title matches one of them is dropped.
	Allow []*regexp.Regexp

	partial string
	callers []*caller // that are printing a report, in the order of their first lines
	reports []Report
}

// caller is a thread or a processor that prints a report.
type caller struct {
	name string   // as the kernel prints it; "" where it names none
	cut  []string // from a cut-here line on, before its title
	open *Report
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
	for _, c := range s.callers {
		s.close(c)
	}
	s.Allow = slices.Concat(s.Allow, faults)
}

// Reports returns what was found so far. The last report of each caller may still be
// growing.
func (s *Scanner) Reports() []Report {
	rs := append([]Report{}, s.reports...)
	for _, c := range s.callers {
		if c.open != nil && !s.allowed(c.open.Title) {
			rs = append(rs, *c.open)
		}
	}
	return rs
}

func (s *Scanner) line(line string) {
	text, name := line, ""
	if m := stamp.FindStringSubmatch(line); m != nil {
		text, name = line[len(m[0]):], m[2]
	}
	i := slices.IndexFunc(s.callers, func(c *caller) bool { return c.name == name })
	if i < 0 {
		i = len(s.callers)
		s.callers = append(s.callers, &caller{name: name})
	}
	c := s.callers[i]
	s.lineOf(c, text, line)
	if c.cut == nil && c.open == nil {
		s.callers = slices.Delete(s.callers, i, i+1)
	}
}

// lineOf takes a caller's next line, of which text is without its stamp.
func (s *Scanner) lineOf(c *caller, text, line string) {
	switch {
	case text == cutHere:
		s.close(c)
		c.cut = []string{line}

	case c.cut != nil && titles.MatchString(text):
		c.start(text, line)

	case c.cut != nil && len(c.cut) <= maxGap:
		// WARN(condition, "text") prints its text before the title.
		c.cut = append(c.cut, line)
		if strings.HasPrefix(text, endTrace) {
			c.start(stamp.ReplaceAllString(c.cut[1], ""), "")
			s.close(c)
		}

	case c.cut != nil:
		// A cut-here line is a fault, whatever follows it.
		c.start(stamp.ReplaceAllString(c.cut[1], ""), line)

	case titles.MatchString(text) && !s.continues(c, text):
		s.close(c)
		c.start(text, line)

	case c.open != nil:
		c.open.Lines = append(c.open.Lines, line)
		if strings.HasPrefix(text, endTrace) || strings.HasPrefix(text, endPanic) || len(c.open.Lines) >= maxLines {
			s.close(c)
		}
	}
}

// continues says whether a title belongs to the report that is open: a
// refcount warning names itself before the WARNING line, and the kernel
// follows "BUG: kernel NULL pointer dereference" with "Oops:", and a fatal
// oops with a panic. An oops is never part of a report that is allowed.
func (s *Scanner) continues(c *caller, text string) bool {
	if c.open == nil {
		return false
	}
	if strings.HasPrefix(text, "WARNING: ") {
		return strings.HasSuffix(c.open.Lines[0], cutHere) && len(c.open.Lines) <= maxGap &&
			!strings.HasPrefix(c.open.Title, "WARNING: ")
	}
	follows := strings.HasPrefix(text, "Oops") || strings.HasPrefix(text, "Kernel panic") || strings.HasPrefix(text, "invalid opcode")
	return follows && !s.allowed(c.open.Title)
}

func (c *caller) start(title, line string) {
	c.open = &Report{Title: title, Lines: c.cut}
	if line != "" {
		c.open.Lines = append(c.open.Lines, line)
	}
	c.cut = nil
}

func (s *Scanner) close(c *caller) {
	if c.open != nil && !s.allowed(c.open.Title) {
		s.reports = append(s.reports, *c.open)
	}
	c.open = nil
}

func (s *Scanner) allowed(title string) bool {
	for _, re := range s.Allow {
		if re.MatchString(title) {
			return true
		}
	}
	return false
}
