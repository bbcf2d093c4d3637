// SPDX-License-Identifier: Apache-2.0

// Package klog finds fault reports in a Linux kernel's log: oopses, BUG and
// WARN, lockdep, refcount, KASAN, stalls, hung tasks, killed processes.
package klog

import (
	"regexp"
	"strings"
)

// Report is one fault with the lines that the kernel printed about it.
type Report struct {
	Title string   // the line that names the fault
	Lines []string // the excerpt, without timestamps' prefix removed
}

// pattern matches a line that starts a report, after the timestamp.
var pattern = regexp.MustCompile(strings.Join([]string{
	`^(watchdog: )?BUG: `,                   // null pointers, KASAN, sleeping in atomic, soft lockup, bad page state
	`^kernel BUG at `,                       // BUG()
	`^WARNING: `,                            // WARN, lockdep
	`^Oops: `,                               //
	`^(traps: )?general protection fault, `, // not the user-space one, which names a program first
	`^Unable to handle kernel `,
	`^Kernel panic - not syncing`,
	`^refcount_t: `,
	`^INFO: task .* blocked for more than `,
	`^INFO: trying to register non-static key`,
	`^INFO: possible `,
	`^INFO: rcu.* detected stall`,
	`^rcu: INFO: .* detected .*stall`,
	`^rcu: .* kthread .*starved`,
	`^(NMI watchdog: |watchdog: )?Watchdog detected hard LOCKUP`,
	`^UBSAN: `,
	`^list_(add|del) corruption`,
	`^slab error in `,
	`^kmemleak: \d+ new suspected memory leaks`,
	`^unregister_netdevice: waiting for `,
	`^DEBUG_LOCKS_WARN_ON`,
	`^ODEBUG: `,
	`^DMA-API: .*(device driver|cacheline)`,
	`^(Memory cgroup out of memory|Out of memory.*): Killed process`,
	`^Kernel panic`,
	`^rdma_rxe: .*not empty`, // rxe's object pools at unload: something leaked
}, "|"))

// DMA-API lines name the driver and device first.
var dmaAPI = regexp.MustCompile(`DMA-API: .*: (device driver|cacheline tracking)`)

// prefix is the timestamp, and the caller where CONFIG_PRINTK_CALLER is set.
var prefix = regexp.MustCompile(`^(<\d+>)?\[ *\d+\.\d+\](\[ *[TC]\d+\])? ?`)

const (
	cutHere  = "------------[ cut here ]------------"
	endTrace = "---[ end trace "
	// maxLines bounds an excerpt that has no end marker.
	maxLines = 60
)

// Scanner collects reports from a log that arrives in pieces.
type Scanner struct {
	// Allow are faults that a test provokes on purpose: a report whose
	// title matches one of them is dropped.
	Allow []*regexp.Regexp

	partial strings.Builder
	pending []string // from a cut-here line on, before its title
	open    *Report
	reports []Report
}

// Write implements io.Writer; it never fails.
func (s *Scanner) Write(p []byte) (int, error) {
	rest := string(p)
	for {
		i := strings.IndexByte(rest, '\n')
		if i < 0 {
			s.partial.WriteString(rest)
			return len(p), nil
		}
		s.partial.WriteString(rest[:i])
		s.line(strings.TrimRight(s.partial.String(), "\r"))
		s.partial.Reset()
		rest = rest[i+1:]
	}
}

// Reports returns what was found so far, the last report possibly still
// growing.
func (s *Scanner) Reports() []Report {
	rs := append([]Report{}, s.reports...)
	if s.open != nil && !s.allowed(s.open.Title) {
		rs = append(rs, *s.open)
	}
	return rs
}

func (s *Scanner) line(line string) {
	text := prefix.ReplaceAllString(line, "")
	stamped := len(text) != len(line)

	if s.open != nil {
		// A warning inside an excerpt is a report of its own, unless it
		// belongs to the one that is open ("Oops:" after "BUG:").
		s.open.Lines = append(s.open.Lines, line)
		if strings.HasPrefix(text, endTrace) || len(s.open.Lines) >= maxLines || strings.HasPrefix(text, "Kernel Offset:") {
			s.close()
		}
		return
	}
	switch {
	case text == cutHere:
		s.pending = []string{line}
	case pattern.MatchString(text) || dmaAPI.MatchString(text):
		s.open = &Report{Title: text, Lines: append(s.pending, line)}
		s.pending = nil
	case s.pending != nil:
		// WARN(cond, "text") prints its text between the two.
		s.pending = append(s.pending, line)
		if len(s.pending) > 5 {
			// A cut-here line that nothing known follows is a fault
			// all the same.
			s.open = &Report{Title: prefix.ReplaceAllString(s.pending[1], ""), Lines: s.pending}
			s.pending = nil
		}
	}
	_ = stamped
}

func (s *Scanner) close() {
	if s.open == nil {
		return
	}
	if !s.allowed(s.open.Title) {
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
