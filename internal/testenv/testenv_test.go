// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"runtime"
	"testing"
)

// ended is a test that notes how it was ended.
type ended struct {
	testing.TB
	how string
}

func (e *ended) Helper()               {}
func (e *ended) Fatalf(string, ...any) { e.how = "failed"; runtime.Goexit() }
func (e *ended) Skipf(string, ...any)  { e.how = "skipped"; runtime.Goexit() }

func TestMissingHeaders(t *testing.T) {
	for promise, want := range map[string]string{"": "skipped", "1": "failed"} {
		t.Setenv(headersVar, promise)
		e := &ended{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			NoHeaders(e, "libnone-dev", "no none.h")
		}()
		<-done
		if e.how != want {
			t.Errorf("with %s=%q the test was %s, want %s", headersVar, promise, e.how, want)
		}
	}
}
