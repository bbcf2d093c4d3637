// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/stationtest"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A client with --watch repeats the plan until it is interrupted, and writes what it does. The server's
// metrics have the operations that it carried out for the client, and keep them after its end.
func TestWatchAndMetrics(t *testing.T) {
	p := stationtest.Dial(t, []string{"nic-a"}, []string{"nic-b"})
	there, c := p.Server, p.Client
	has := func(want ...string) {
		t.Helper()
		text := stationtest.Metrics(t, there)
		for _, w := range want {
			if !strings.Contains(text, w+"\n") {
				t.Errorf("no %s in\n%s", w, text)
			}
		}
	}
	var out stationtest.Said
	a := &app.App{Stdout: &out}
	f := &params{addr: "a:1", both: true, watch: true, count: 4, work: talk.Ops(), bytes: []int64{64, 4096}}
	r := &Result{Server: "a:1"}
	watching, stop := context.WithCancel(t.Context())
	time.AfterFunc(every+every/2, stop)
	if err := tryAll(watching, a, f, c, r); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if len(r.Rows) != r.Planned || r.interrupted {
		t.Errorf("%d of %d rows", len(r.Rows), r.Planned)
	}
	for _, row := range r.Rows {
		if !row.OK {
			t.Errorf("%+v", row)
		}
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) < 2 || !strings.HasPrefix(lines[0], "port 1 of nic-b  up  ") || !strings.HasSuffix(lines[0], " 0 errors") || strings.Contains(lines[0], " 0 operations/s") {
		t.Errorf("%q", lines)
	}
	has(`gpurdma_connections{nic="nic-a"} 1`, `gpurdma_errors_total{kind="write",nic="nic-a"} 0`)
	if err := c.HangUp(); err != nil {
		t.Error(err)
	}
	ended := `gpurdma_connections{nic="nic-a"} 0` + "\n"
	for end := time.Now().Add(testenv.Limit(time.Minute)); !strings.Contains(stationtest.Metrics(t, there), ended) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	text := stationtest.Metrics(t, there)
	for _, none := range []string{`gpurdma_operations_total{kind="write",nic="nic-a"} 0`, `gpurdma_bytes_total{kind="write",nic="nic-a"} 0`} {
		if !strings.Contains(text, ended) || strings.Contains(text, none+"\n") {
			t.Errorf("after the client's end:\n%s", text)
		}
	}
}
