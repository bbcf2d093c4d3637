// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

// State is how a test ended.
type State int

const (
	Unfinished State = iota
	Passed
	Failed
	Skipped
)

func (s State) String() string {
	return [...]string{"did not end", "passed", "failed", "skipped"}[s]
}

// Result is one test's.
type Result struct {
	Group   string // import path, or "peers"
	Name    string
	State   State
	Parent  bool // has subtests, which count in its place
	Elapsed time.Duration
	Output  string
}

// Summary are all results of a run.
type Summary struct {
	Results []Result
	// Problems are failures that belong to no test, such as a kernel fault
	// after the last one.
	Problems []string
}

// Add adds results.
func (s *Summary) Add(rs ...Result) { s.Results = append(s.Results, rs...) }

// Count returns how many tests passed, failed and were skipped. A test with
// subtests counts as its subtests, unless it failed without any of them
// failing.
func (s *Summary) Count() (passed, failed, skipped int) {
	for _, r := range s.Results {
		if r.Parent && !(r.State == Failed && !s.childFailed(r)) {
			continue
		}
		switch r.State {
		case Passed:
			passed++
		case Skipped:
			skipped++
		default:
			failed++
		}
	}
	return passed, failed + len(s.Problems), skipped
}

func (s *Summary) childFailed(p Result) bool {
	for _, r := range s.Results {
		if r.Group == p.Group && strings.HasPrefix(r.Name, p.Name+"/") && r.State == Failed {
			return true
		}
	}
	return false
}

// Write writes what failed and was skipped, and the counts alone on the last
// line. module is cut from the front of groups.
func (s *Summary) Write(w io.Writer, module string) {
	for _, r := range s.Results {
		if r.State == Skipped {
			fmt.Fprintf(w, "SKIP %s %s: %s\n", Short(r.Group, module), r.Name, reason(r.Output))
		}
	}
	for _, f := range s.Failures(module) {
		fmt.Fprintf(w, "FAIL %s\n", f)
	}
	p, f, k := s.Count()
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", p, f, k)
}

// Failures are the tests that failed, each with its first complaint, and the
// problems.
func (s *Summary) Failures(module string) (list []string) {
	for _, r := range s.Results {
		if r.State != Failed && r.State != Unfinished || r.Parent && s.childFailed(r) {
			continue
		}
		list = append(list, fmt.Sprintf("%s %s: %s", Short(r.Group, module), r.Name, complaint(r.Output)))
	}
	return append(list, s.Problems...)
}

// Skipped are the tests that were skipped, with their groups, by the reason that they gave.
func (s *Summary) Skipped(module string) map[string][]string {
	by := map[string][]string{}
	for _, r := range s.Results {
		if r.State == Skipped && !r.Parent {
			why := place.ReplaceAllString(reason(r.Output), "")
			by[why] = append(by[why], Short(r.Group, module)+" "+r.Name)
		}
	}
	return by
}

// place is where a Go test said something.
var place = regexp.MustCompile(`^\S+\.go:\d+: `)

// said are the lines of a test's output without the test runner's own.
func said(output string) (lines []string) {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "--- ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// reason is the last line of a skipped test's output before its verdict.
func reason(output string) string {
	lines := said(output)
	if len(lines) == 0 {
		return "no reason given"
	}
	return lines[len(lines)-1]
}

// complaint is the first line of a failed test's output that a Go test wrote, or
// the last of any other.
func complaint(output string) string {
	for _, line := range said(output) {
		if strings.Contains(line, "_test.go:") || strings.HasPrefix(line, "panic: ") {
			return line
		}
	}
	return reason(output)
}

// Short is a group's name in lists: an import path without the module's.
func Short(group, module string) string {
	if group == module {
		return "."
	}
	return strings.TrimPrefix(group, module+"/")
}

// Required is a test that must have run and passed.
type Required struct {
	Group, Name string
	Line        int
}

// ReadRequired reads a list: a group and a test's name a line, # starts a
// comment.
func ReadRequired(file string) ([]Required, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseRequired(f, file)
}

func parseRequired(r io.Reader, file string) ([]Required, error) {
	var list []Required
	var errs []error
	seen := map[string]int{}
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		line, _, _ := strings.Cut(s.Text(), "#")
		fields := strings.Fields(line)
		switch len(fields) {
		case 0:
			continue
		case 2:
			key := fields[0] + " " + fields[1]
			if seen[key] != 0 {
				errs = append(errs, fmt.Errorf("%s:%d: %s is on line %d already", file, n, key, seen[key]))
			}
			seen[key] = n
			list = append(list, Required{Group: fields[0], Name: fields[1], Line: n})
		default:
			errs = append(errs, fmt.Errorf("%s:%d: want a package and a test's name: %q", file, n, s.Text()))
		}
	}
	return list, errors.Join(append(errs, s.Err())...)
}

// Check adds a problem for each required test that did not run or was
// skipped. (One that failed is counted already.)
func (s *Summary) Check(required []Required, module string) {
	state := map[string]State{}
	for _, r := range s.Results {
		state[Short(r.Group, module)+" "+r.Name] = r.State
	}
	for _, q := range required {
		key := q.Group + " " + q.Name
		switch st, ran := state[key]; {
		case !ran:
			s.Problems = append(s.Problems, fmt.Sprintf("%s: required, but it did not run", key))
		case st == Skipped:
			s.Problems = append(s.Problems, fmt.Sprintf("%s: required, but it was skipped", key))
		}
	}
}

// WritePassed writes the names of the tests that passed, in the format of the
// required list.
func (s *Summary) WritePassed(file, module string) error {
	var b strings.Builder
	for _, r := range s.Results {
		if r.State == Passed {
			fmt.Fprintf(&b, "%s %s\n", Short(r.Group, module), r.Name)
		}
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
