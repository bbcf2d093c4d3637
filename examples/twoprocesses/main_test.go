// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// output is a buffer that several goroutines write to.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// runs runs the program with flags, and checks that its output has these texts.
func runs(t *testing.T, flags map[string]string, wants ...string) {
	t.Helper()
	for name, value := range flags {
		before := flag.Lookup(name).Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, before) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(time.Minute))
	defer cancel()
	out := new(output)
	err := run(ctx, out)
	got := out.text.String()
	if err != nil {
		t.Fatalf("%v, after:\n%s", err, got)
	}
	for _, want := range wants {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

//testbed:kernel 7.2 6.12
func TestVMTwoProcesses(t *testing.T) {
	testenv.VM(t)
	testenv.Need(t, "udmabuf", "6.12", testenv.Node("/dev/udmabuf"))
	for name, flags := range map[string]map[string]string{
		"memory": {"fabric": "memory"}, "rxe": {"fabric": "", "nic": "rxe0"},
	} {
		t.Run(name, func(t *testing.T) {
			flags["python"] = "/usr/bin/python3"
			runs(t, flags, "engine: all bytes have arrived")
		})
	}
}

// Without an interpreter, or an engine that connects, the error says so.
func TestNoEngine(t *testing.T) {
	for interpreter, want := range map[string]string{"/nonexistent/python3": "no such file", "/bin/false": "the engine has ended"} {
		*fabric, *python = "memory", interpreter
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(time.Minute))
		if err := run(ctx, new(output)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", interpreter, err)
		}
		cancel()
	}
}
