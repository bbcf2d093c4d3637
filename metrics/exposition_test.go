// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/exposition"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
	"github.com/gpurdma/gpurdma/metrics"
)

// The text that dmabuf-reg serve writes has the metrics of the collector.
func TestExposition(t *testing.T) {
	p := newPair(t, 1000)
	for range 3 {
		if err := p.client.Write(limited(t), p.remote, p.mine.All()); err != nil {
			t.Fatal(err)
		}
		if err := p.server.Send(limited(t), []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second one is wrong when it is taken
		if err := p.client.Write(limited(t), p.remote, p.mine.All(), gpurdma.Notify(nil), gpurdma.Delivered()); err != nil {
			t.Fatal(err)
		}
	}
	must(p.server.ReceiveNotification(limited(t)))(t)
	must(p.theirs.WriteAt([]byte{1}, 500))(t)
	if _, err := p.server.ReceiveNotification(limited(t)); !errors.Is(err, gpurdma.ErrCorrupt) {
		t.Error(err)
	}
	c := metrics.NewCollector(p.b)
	s := p.b.Stats().ByNIC["mlx5_0"]
	sum := workqueue.Sum{Conns: s.Conns, Pinned: s.Pinned, Copied: s.Staged, Blocks: workqueue.Blocks{Checked: s.Checked, Corrupt: s.Corrupt}}
	for from, to := range map[gpurdma.OpKind]operation.Kind{
		gpurdma.OpWrite: operation.Write, gpurdma.OpRead: operation.Read, gpurdma.OpSend: operation.Send,
		gpurdma.OpFetchAdd: operation.FetchAdd, gpurdma.OpCompareSwap: operation.CompareSwap,
	} {
		x := s.ByKind[from]
		k := &sum.Counts[to]
		k.Failed, k.Bytes, k.Staged, k.Time = x.Failed, x.Bytes, x.Staged, x.Time
		copy(k.Latency[:], x.Latency)
	}
	if s.ByKind[gpurdma.OpSend].Done != 3 || s.Checked != 2 || s.Corrupt != 1 {
		t.Errorf("%+v", s)
	}
	var b strings.Builder
	exposition.Write(&b, exposition.NIC{Name: "mlx5_0", Sum: &sum})
	if err := testutil.CollectAndCompare(c, strings.NewReader(b.String())); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
