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

var want = []string{"28 results", `"full: 32 of 32 clients"`, "client-7 has died", "client-31 has died"}

func TestFanin(t *testing.T) { runs(t, map[string]string{"fabric": "memory"}, want...) }

//testbed:kernel 7.2 6.12
func TestVMFanin(t *testing.T) {
	testenv.VM(t)
	goOn = make(chan struct{})
	runs(t, map[string]string{"fabric": "", "nic": "rxe0"}, want...)
}
