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

	first int // the number of its first line in the log
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
	// backtrace is what a processor prints that another one asks for its stack.
	backtrace = "NMI backtrace for cpu "

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
	lines   int       // so far
	callers []*caller // that are printing a report
	reports []*Report // that are not allowed, in the order of their titles
	latest  *Report   // whose title came last, allowed or not
}

// caller is a thread or a processor that prints a report.
type caller struct {
	name  string   // as the kernel prints it; "" where it names none
	cut   []string // from a cut-here line on, before its title
	began int      // the line of cut
	open  *Report
	left  int // lines that open may still take
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
		s.give(c)
		c.open = nil
	}
	s.callers = nil
	s.Allow = slices.Concat(s.Allow, faults)
}

// Reports returns the reports so far, in the order of their first lines. The last one of each caller may still be
// growing.
func (s *Scanner) Reports() []Report {
	for _, c := range s.callers {
		if c.cut != nil && s.lines-c.began > maxLines { // its title is lost, or its thread has died
			s.give(c)
		}
	}
	sorted := slices.Clone(s.reports)
	slices.SortStableFunc(sorted, func(a, b *Report) int { return a.first - b.first })
	var rs []Report
	for _, r := range sorted {
		rs = append(rs, Report{Title: r.Title, Lines: slices.Clone(r.Lines)})
	}
	return rs
}

func (s *Scanner) line(line string) {
	s.lines++
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
		s.give(c)
		c.cut, c.began, c.open = []string{line}, s.lines, nil

	case c.cut != nil && titles.MatchString(text):
		s.start(c, text, line)

	case c.cut != nil && len(c.cut) <= maxGap:
		// WARN(condition, "text") prints its text before the title.
		c.cut = append(c.cut, line)
		if strings.HasPrefix(text, endTrace) {
			s.give(c)
			c.open = nil
		}

	case c.cut != nil:
		// A cut-here line is a fault, whatever follows it.
		s.start(c, stamp.ReplaceAllString(c.cut[1], ""), line)

	case titles.MatchString(text) && !s.continues(c, text):
		s.start(c, text, line)

	case c.open == nil && c.name != "" && strings.HasPrefix(text, backtrace) && s.latest != nil:
		// Another processor prints its stack for the report of a stall.
		c.open, c.left = s.latest, maxLines-1
		c.open.Lines = append(c.open.Lines, line)

	case c.open != nil:
		c.open.Lines = append(c.open.Lines, line)
		c.left--
		if strings.HasPrefix(text, endTrace) || strings.HasPrefix(text, endPanic) || c.left <= 0 {
			c.open = nil
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

// start opens the report of a caller, with the lines since its cut-here line.
func (s *Scanner) start(c *caller, title, line string) {
	r := &Report{Title: title, Lines: c.cut, first: s.lines}
	if c.cut != nil {
		r.first = c.began
	}
	if line != "" {
		r.Lines = append(r.Lines, line)
	}
	c.cut, c.open, c.left = nil, r, maxLines-len(r.Lines)
	s.latest = r
	if !s.allowed(title) {
		s.reports = append(s.reports, r)
	}
}

// give makes a report of a cut-here line whose title has not come.
func (s *Scanner) give(c *caller) {
	if c.cut != nil {
		s.start(c, stamp.ReplaceAllString(c.cut[min(1, len(c.cut)-1)], ""), "")
	}
}

func (s *Scanner) allowed(title string) bool {
	for _, re := range s.Allow {
		if re.MatchString(title) {
			return true
		}
	}
	return false
}
