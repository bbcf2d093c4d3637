// SPDX-License-Identifier: Apache-2.0

package klog

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
)

// scan feeds a log to a scanner in pieces of one byte: no line may depend on
// how the log was cut.
func scan(t *testing.T, log string, allow ...string) []Report {
	t.Helper()
	var s Scanner
	for _, a := range allow {
		s.Allow = append(s.Allow, regexp.MustCompile(a))
	}
	r := iotest.OneByteReader(strings.NewReader(log))
	buf := make([]byte, 16)
	for {
		n, err := r.Read(buf)
		s.Write(buf[:n])
		if err != nil {
			return s.Reports()
		}
	}
}

// TestReports reads logs as kernels print them. A file's first lines say
// which titles are expected ("# title"), none for a log without faults.
func TestReports(t *testing.T) {
	files, err := filepath.Glob("testdata/*.log")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test logs: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".log"), func(t *testing.T) {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			var log strings.Builder
			for line := range strings.Lines(string(b)) {
				if title, ok := strings.CutPrefix(line, "# "); ok {
					want = append(want, strings.TrimSpace(title))
				} else {
					log.WriteString(strings.TrimRight(line, "\n") + "\r\n") // as a serial line has it
				}
			}
			var got []string
			for _, r := range scan(t, log.String()) {
				got = append(got, r.Title)
				if !strings.Contains(strings.Join(r.Lines, "\n"), r.Title) {
					t.Errorf("the excerpt lacks its title %q:\n%s", r.Title, strings.Join(r.Lines, "\n"))
				}
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got titles\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func TestExcerptEndsAtMarker(t *testing.T) {
	log := "[    1.0] before\n[    2.0] ------------[ cut here ]------------\n" +
		"[    2.0] WARNING: CPU: 0 PID: 1 at a.c:1 f+0x0/0x10\n[    2.0] Call Trace:\n" +
		"[    2.1] ---[ end trace 0000000000000000 ]---\n[    3.0] after\n"
	rs := scan(t, log)
	if len(rs) != 1 {
		t.Fatalf("got %d reports, want 1", len(rs))
	}
	if text := strings.Join(rs[0].Lines, "\n"); strings.Contains(text, "before") || strings.Contains(text, "after") || !strings.Contains(text, "Call Trace") {
		t.Errorf("wrong excerpt:\n%s", text)
	}
}

func TestExcerptIsBounded(t *testing.T) {
	log := "[    1.0] INFO: task sh:5 blocked for more than 120 seconds.\n" + strings.Repeat("[    1.1] line\n", 500)
	rs := scan(t, log)
	if len(rs) != 1 || len(rs[0].Lines) != maxLines {
		t.Errorf("got %d reports, the first with %d lines; want 1 with %d", len(rs), len(rs[0].Lines), maxLines)
	}
}

// An allowed report must not swallow the next one, though it has no end
// marker.
func TestAllow(t *testing.T) {
	log := "[    1.0] Out of memory: Killed process 7 (hog) total-vm:1kB\n" +
		"[    1.1] BUG: kernel NULL pointer dereference, address: 0000000000000008\n" +
		"[    1.2] Oops: 0000 [#1] PREEMPT SMP\n"
	rs := scan(t, log, "^Out of memory")
	if len(rs) != 1 || !strings.HasPrefix(rs[0].Title, "BUG: ") {
		t.Errorf("got %v, want the BUG alone", rs)
	}
	log = "[    1.0] Out of memory: Killed process 7 (hog) total-vm:1kB\n[    1.2] Oops: 0000 [#1] PREEMPT SMP\n"
	if rs := scan(t, log, "^Out of memory"); len(rs) != 1 {
		t.Errorf("an oops after an allowed report: got %v", rs)
	}
	if rs := scan(t, log); len(rs) != 1 {
		t.Errorf("an oops that a report leads to: got %v", rs)
	}
}

// The line before the warning names the fault, and is what is allowed.
func TestDMADebug(t *testing.T) {
	log := "[  331.328324] ------------[ cut here ]------------\n" +
		"[  331.329334] DMA-API: e1000e 0000:04:00.0: mapping sg segment longer than device claims to support [len=131072] [max=65536]\n" +
		"[  331.330593] WARNING: CPU: 0 PID: 70 at kernel/dma/debug.c:1181 debug_dma_map_sg+0x70e/0xbe0\n" +
		"[  331.337851] Call Trace:\n[  331.400000] ---[ end trace 0000000000000000 ]---\n"
	if rs := scan(t, log); len(rs) != 1 || !strings.HasPrefix(rs[0].Title, "DMA-API: e1000e") {
		t.Errorf("got %v", rs)
	}
	if rs := scan(t, log, "^DMA-API: .*: mapping sg segment longer"); len(rs) != 0 {
		t.Errorf("allowed: got %v", rs)
	}
}

// A fault that was reported before the call is still a fault.
func TestAllowFromHere(t *testing.T) {
	const oom = "[    1.0] Out of memory: Killed process 7 (hog) total-vm:1kB\n"
	var s Scanner
	s.Write([]byte(oom))
	s.AllowFromHere(regexp.MustCompile("^Out of memory"))
	s.Write([]byte(oom))
	if rs := s.Reports(); len(rs) != 1 {
		t.Errorf("got %v, want the first alone", rs)
	}
}

// Two processors print at once. By the callers, the report that is allowed and the one that is not do
// not mix; without them the lines are one report after another, and the first is cut short.
func TestReportsOfTwoProcessors(t *testing.T) {
	log := `[  306.396392][   T93] ------------[ cut here ]------------
[  306.396393][   T88] ------------[ cut here ]------------
[  306.396394][   T93] DMA-API: misc udmabuf: device driver syncs DMA memory with different direction
[  306.396395][   T88] list_add corruption. prev->next should be next
[  306.396396][   T88] WARNING: CPU: 1 PID: 88 at lib/list_debug.c:29 __list_add_valid+0x1/0x2
[  306.396397][   T93] WARNING: CPU: 0 PID: 93 at kernel/dma/debug.c:1129 check_sync+0xd6f/0x1680
[  306.396398][   T88] Call Trace:
[  306.396398][    C0] rcu: rcu_preempt kthread starved for 15002 jiffies!
[  306.396399][   T93] ---[ end trace 0000000000000000 ]---
[  306.396400][   T88]  list_add_one+0x1/0x2
[  306.396401][   T88] ---[ end trace 0000000000000000 ]---
`
	rs := scan(t, log, "^DMA-API: misc udmabuf")
	if len(rs) != 2 || !strings.HasPrefix(rs[0].Title, "list_add corruption") || !strings.HasPrefix(rs[1].Title, "rcu: ") {
		t.Fatalf("got %v, want the corruption and the stall", rs)
	}
	if text := strings.Join(rs[0].Lines, "\n"); len(rs[0].Lines) != 6 || strings.Contains(text, "T93") || !strings.Contains(text, "list_add_one") {
		t.Errorf("excerpt:\n%s", text)
	}
}

// A report comes first if its first line does, though another processor's ends before it.
func TestOrderOfReports(t *testing.T) {
	log := `[    1.0][   T93] ------------[ cut here ]------------
[    1.1][    C1] rcu: rcu_preempt kthread starved for 15002 jiffies!
[    1.2][   T93] WARNING: CPU: 0 PID: 93 at a.c:1 f+0x1/0x2
[    1.3][    T5] INFO: task sh:5 blocked for more than 120 seconds.
[    1.4][   T93] ---[ end trace 0000000000000000 ]---
`
	rs := scan(t, log)
	if len(rs) != 3 || !strings.HasPrefix(rs[0].Title, "WARNING: ") || !strings.HasPrefix(rs[1].Title, "rcu: ") || !strings.HasPrefix(rs[2].Title, "INFO: ") {
		t.Errorf("got %v", rs)
	}
}

// A cut-here line is a fault, also if its thread prints no more.
func TestCutHereWithoutTitle(t *testing.T) {
	const cut = "[    1.0][   T93] ------------[ cut here ]------------\n"
	if rs := scan(t, cut+strings.Repeat("[    1.1][   T88] line\n", maxLines+1)); len(rs) != 1 || len(rs[0].Lines) != 1 {
		t.Errorf("of a thread that has died: got %v", rs)
	}
	if rs := scan(t, cut+cut+"[    1.2][   T93] WARNING: CPU: 0 PID: 93 at a.c:1 f+0x1/0x2\n"); len(rs) != 2 {
		t.Errorf("two: got %v", rs)
	}
	var s Scanner
	s.Write([]byte(cut))
	s.AllowFromHere(regexp.MustCompile("."))
	s.Write([]byte(cut + "[    1.2][   T93] WARNING: CPU: 0 PID: 93 at a.c:1 f+0x1/0x2\n"))
	if rs := s.Reports(); len(rs) != 1 {
		t.Errorf("before more is allowed: got %v", rs)
	}
}

// The processor that stalls prints its stack itself, for the report of the one that has found out.
func TestBacktraceOfAnotherProcessor(t *testing.T) {
	log := `[   60.0][    C0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[   60.1][    C0] rcu: 	1-...!: (0 ticks this GP) idle=1/0/0x0
[   60.2][    C0] Sending NMI from CPU 0 to CPUs 1:
[   60.3][    C1] NMI backtrace for cpu 1
[   60.3][   T77] udevd: a line of its own
[   60.4][    C1]  default_idle+0xf/0x20
`
	rs := scan(t, log)
	if len(rs) != 1 {
		t.Fatalf("got %v", rs)
	}
	if text := strings.Join(rs[0].Lines, "\n"); !strings.Contains(text, "NMI backtrace for cpu 1") || !strings.Contains(text, "default_idle") || strings.Contains(text, "udevd") {
		t.Errorf("excerpt:\n%s", text)
	}
}
