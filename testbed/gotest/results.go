// SPDX-License-Identifier: Apache-2.0

package gotest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/testbed/suite"
)

// event is a line of `go tool test2json`.
type event struct {
	Action  string
	Test    string
	Output  string
	Elapsed float64
}

// Collector turns the events of one package's run into results.
type Collector struct {
	Package string
	// Live gets readable output as it comes: everything with Verbose, else
	// a line for each top-level test that ends and the output of those
	// that fail.
	Live    io.Writer
	Verbose bool

	order   []string
	results map[string]*suite.Result
	output  map[string]*strings.Builder
	rest    strings.Builder // output that belongs to no test
	failed  bool            // the package as a whole
}

// Read reads events until the end.
func (c *Collector) Read(r io.Reader) error {
	c.results = map[string]*suite.Result{}
	c.output = map[string]*strings.Builder{}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var e event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return fmt.Errorf("go tool test2json: %w: %q", err, s.Text())
		}
		c.event(e)
	}
	return s.Err()
}

func (c *Collector) event(e event) {
	if e.Action == "output" && c.Verbose {
		io.WriteString(c.Live, e.Output)
	}
	if e.Test == "" {
		switch e.Action {
		case "output":
			c.rest.WriteString(e.Output)
		case "fail":
			c.failed = true
		}
		return
	}
	switch e.Action {
	case "run":
		c.order = append(c.order, e.Test)
		c.results[e.Test] = &suite.Result{Group: c.Package, Name: e.Test, State: suite.Unfinished}
		c.output[e.Test] = &strings.Builder{}
	case "output":
		if b := c.output[e.Test]; b != nil {
			b.WriteString(e.Output)
		}
	case "pass", "fail", "skip":
		r := c.results[e.Test]
		if r == nil {
			return
		}
		r.State = map[string]suite.State{"pass": suite.Passed, "fail": suite.Failed, "skip": suite.Skipped}[e.Action]
		r.Elapsed = time.Duration(e.Elapsed * float64(time.Second))
		r.Output = c.output[e.Test].String()
		if !c.Verbose && (!strings.Contains(e.Test, "/") || r.State == suite.Failed) {
			c.print(r)
		}
	}
}

func (c *Collector) print(r *suite.Result) {
	if r.State == suite.Passed {
		fmt.Fprintf(c.Live, "--- PASS: %s (%.2fs)\n", r.Name, r.Elapsed.Seconds())
		return
	}
	io.WriteString(c.Live, r.Output) // has its own verdict line
}

// Results returns every test's result, in the order the tests started.
// failure is why the run as a whole cannot be trusted, or empty: a test that
// was running then has failed.
func (c *Collector) Results(failure string) []suite.Result {
	var rs []suite.Result
	anyFailed := false
	for _, name := range c.order {
		r := *c.results[name]
		if r.State == suite.Unfinished {
			r.State = suite.Failed
			r.Output = c.output[name].String()
			if failure != "" {
				r.Output += failure + "\n"
			} else {
				r.Output += "the test did not end\n"
			}
			if !c.Verbose {
				fmt.Fprintf(c.Live, "--- FAIL: %s (did not end)\n%s", r.Name, r.Output)
			}
		}
		r.Parent = c.hasChildren(name)
		anyFailed = anyFailed || r.State == suite.Failed
		rs = append(rs, r)
	}
	if (c.failed || failure != "") && !anyFailed || failure != "" && len(rs) == 0 {
		r := suite.Result{Group: c.Package, Name: "(package)", State: suite.Failed, Output: c.rest.String()}
		if failure != "" {
			r.Output += failure + "\n"
		}
		if !c.Verbose {
			fmt.Fprintf(c.Live, "--- FAIL: %s\n%s", r.Name, r.Output)
		}
		rs = append(rs, r)
	}
	return rs
}

func (c *Collector) hasChildren(name string) bool {
	for _, o := range c.order {
		if strings.HasPrefix(o, name+"/") {
			return true
		}
	}
	return false
}
