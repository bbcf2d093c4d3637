// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/nics"
	"github.com/gpurdma/gpurdma/internal/fd"
)

// asCommand makes the test binary the command itself, for tests that run it as
// a process of its own.
const asCommand = "DMABUF_REG_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	testscript.Main(withoutLeaks{m}, map[string]func(){app.Program: main})
}

// withoutLeaks fails the tests if they leak a descriptor.
type withoutLeaks struct{ m *testing.M }

func (w withoutLeaks) Run() int {
	fd.Track()
	code := w.m.Run()
	if leaks := fd.Leaks(); len(leaks) > 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d leaked file descriptors:\n%s\n", len(leaks), strings.Join(leaks, "\n"))
		code = 99
	}
	return code
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TESTPID", strconv.Itoa(os.Getpid())) // a process that may be looked at
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"document": document, "status": status},
		Condition: func(cond string) (bool, error) {
			if cond == "library" {
				return nics.NeedLibrary() == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// document checks that the last command's stdout is one JSON document of our
// schema, for the command and exit status given.
func document(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: document COMMAND STATUS")
	}
	var d struct {
		Schema  string
		Command string
		OK      bool
		Status  *int `json:"exit_status"`
		Errors  []struct{ Kind, Message string }
	}
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	ts.Check(dec.Decode(&d))
	if dec.More() {
		ts.Fatalf("more than one document")
	}
	command := strings.Trim(args[0], `"-`)
	switch {
	case d.Schema != app.Schema || d.Command != command || d.Status == nil || fmt.Sprint(*d.Status) != args[1]:
		ts.Fatalf("got %+v with exit status %v, want schema %q, command %q, exit status %s", d, d.Status, app.Schema, command, args[1])
	case d.OK != (*d.Status == 0) || d.OK != (len(d.Errors) == 0):
		ts.Fatalf("ok is %v with %d errors", d.OK, len(d.Errors))
	}
	ts.Check(asTheSchemaSays([]byte(ts.ReadFile("stdout"))))
	for _, e := range d.Errors {
		if e.Kind == "" || e.Message == "" {
			ts.Fatalf("error without kind or message: %+v", e)
		}
	}
}

// status runs the command and checks its exit status, which exec cannot.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND ARG...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("%s: exit status %s (%v), want %s", strings.Join(args[1:], " "), got, err, args[0])
	}
}
