// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
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

func TestKVMove(t *testing.T) {
	runs(t, map[string]string{"fabric": "memory"}, "10.0.0.1:1 got 8 requests: <nil>", "10.0.0.3:1 got 8 requests: <nil>", "10.0.0.2:1 has request 0", "the peer has ended the connection")
}

//testbed:kernel 7.2 6.12
func TestVMKVMove(t *testing.T) {
	testenv.VM(t)
	const addr = "127.0.0.1:7472"
	*nic, *gpu, *fabric = "rxe0", "drm:vgem", ""
	decoded := make(chan string, 1)
	go func() {
		fab, err := gpurdma.Open(*nic)
		if err != nil {
			decoded <- err.Error()
			return
		}
		defer fab.Close()
		out := new(output)
		if err := decodeAt(context.Background(), fab, addr, *requests, out); err != nil {
			t.Error(err)
		}
		decoded <- out.text.String()
	}()
	runs(t, map[string]string{"fabric": "", "prefill": addr}, addr+" got 8 requests: <nil>")
	if got := <-decoded; !strings.Contains(got, "has request 7") {
		t.Errorf("the decoder said %q", got)
	}
}
