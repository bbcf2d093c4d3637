// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Metrics are served on this machine only, at /metrics.
func TestServeMetrics(t *testing.T) {
	net := memnic.New()
	nic := memory.NewNIC(net.Device("nic-a", memnic.Limits{}), memory.NICOptions{})
	f := &station.Flags{Size: 64 << 10, Timeout: testenv.Limit(time.Minute), Policy: station.Policy(memory.PreferDirect)}
	st, err := f.OnNICs(t.Context(), []*memory.NIC{nic}, New(t.Logf).Options())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	l, err := listenMetrics(ctx, ":0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("served at %s", url)
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	tasks.Go(func() {
		if err := serveMetrics(ctx, st, l); err != nil {
			t.Error(err)
		}
	})
	status, text := testenv.Get(t, url+"/metrics")
	if n := strings.Count(text, "# TYPE gpurdma_"); status != http.StatusOK || n != 11 {
		t.Errorf("%d, %d metrics:\n%s", status, n, text)
	}
	for _, w := range []string{`gpurdma_connections{nic="nic-a"} 0`, `gpurdma_operations_total{kind="write",nic="nic-a"} 0`} {
		if !strings.Contains(text, w+"\n") {
			t.Errorf("no %s in\n%s", w, text)
		}
	}
	if status, _ := testenv.Get(t, url+"/"); status != http.StatusNotFound {
		t.Errorf("at /: %d", status)
	}
}
