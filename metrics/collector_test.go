// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/nicmetrics"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/metrics"
)

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// pair is two machines with a connection, and memory that one has lent the other.
type pair struct {
	a, b           *gpurdma.Fabric
	client, server *gpurdma.Conn
	mine, theirs   *gpurdma.Buffer
	remote         gpurdma.Remote
}

func newPair(t testing.TB, size int64) *pair {
	net := fabrictest.NewNetwork(fabrictest.Options{})
	p := &pair{a: must(net.Open("mlx5_0", "mlx5_1"))(t), b: must(net.Open("mlx5_0"))(t)}
	t.Cleanup(func() { _, _ = p.a.Close(), p.b.Close() })
	ln := must(p.b.Listen("127.0.0.1:1", gpurdma.Config{}))(t)
	p.client = must(p.a.Dial(limited(t), "127.0.0.1:1", gpurdma.Config{Verify: gpurdma.VerifyAll}))(t)
	p.server = must(ln.Accept(limited(t)))(t)
	p.theirs = must(p.b.Alloc(limited(t), "host", size))(t)
	p.mine = must(p.a.Alloc(limited(t), "staged", size))(t)
	if err := p.server.Export("memory", p.theirs.All(), gpurdma.ReadWrite|gpurdma.Atomic); err != nil {
		t.Fatal(err)
	}
	p.remote = must(p.client.Import(limited(t), "memory"))(t)
	return p
}

// The metrics are what the test has done, and their names are as Prometheus wants them.
func TestCollector(t *testing.T) {
	p := newPair(t, 1000)
	c := metrics.NewCollector(p.a)
	if problems := must(testutil.CollectAndLint(c))(t); len(problems) > 0 {
		t.Error(problems)
	}
	full := make([]byte, 1000)
	for i := range full {
		full[i] = 1
	}
	must(p.mine.WriteAt(full, 0))(t)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := p.client.Write(limited(t), p.remote.Range(0, 100), p.mine.Range(0, 100)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := p.client.Read(limited(t), p.mine.All(), p.remote); err != nil {
		t.Error(err)
	}
	must(p.client.FetchAdd(limited(t), p.remote.Range(0, 8), 1))(t)
	must(p.client.CompareSwap(limited(t), p.remote.Range(0, 8), 1, 1))(t)
	p.mine.SetReady(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: p.mine.All(), Remote: p.remote}))(t)
	x.Cancel()
	<-x.Released()
	if err := p.client.Close(); err != nil { // the counts stay
		t.Error(err)
	}
	pinned := p.a.Stats().ByNIC["mlx5_0"].Pinned
	want := func(name, kind, help string, of func(nic, kind string) int64) string {
		text := fmt.Sprintf("# HELP gpurdma_%s %s\n# TYPE gpurdma_%s %s\n", name, help, name, kind)
		for _, nic := range []string{"mlx5_0", "mlx5_1"} {
			for _, op := range []string{"compare-and-swap", "fetch-and-add", "read", "send", "write"} {
				n := int64(0)
				if nic == "mlx5_0" {
					n = of(nic, op)
				}
				text += fmt.Sprintf("gpurdma_%s{kind=%q,nic=%q} %d\n", name, op, nic, n)
			}
		}
		return text
	}
	by := func(m map[string]int64) func(nic, kind string) int64 {
		return func(_, kind string) int64 { return m[kind] }
	}
	text := want("operations_total", "counter", "Operations of this side that were carried out.", by(map[string]int64{"write": 10, "read": 1, "fetch-and-add": 1, "compare-and-swap": 1})) +
		want("errors_total", "counter", "Operations of this side that have failed, or were withdrawn, wholly or in part.", by(map[string]int64{"write": 1})) +
		want("repeats_total", "counter", "Times that an operation was begun again on another link.", by(nil)) +
		want("bytes_total", "counter", "Bytes of the operations that were carried out.", by(map[string]int64{"write": 1000, "read": 1000, "fetch-and-add": 8, "compare-and-swap": 8})) +
		want("staged_bytes_total", "counter", "Bytes that the CPU has copied between staging buffers and their sources for operations.", by(map[string]int64{"read": 1000})) +
		"# HELP gpurdma_connections Connections that are open.\n# TYPE gpurdma_connections gauge\ngpurdma_connections{nic=\"mlx5_0\"} 0\ngpurdma_connections{nic=\"mlx5_1\"} 0\n" +
		fmt.Sprintf("# HELP gpurdma_pinned_bytes Host memory that is pinned for the NIC.\n# TYPE gpurdma_pinned_bytes gauge\ngpurdma_pinned_bytes{nic=\"mlx5_0\"} %d\ngpurdma_pinned_bytes{nic=\"mlx5_1\"} %d\n", pinned, p.a.Stats().ByNIC["mlx5_1"].Pinned)
	if err := testutil.CollectAndCompare(c, strings.NewReader(text), "gpurdma_operations_total", "gpurdma_errors_total", "gpurdma_repeats_total", "gpurdma_bytes_total", "gpurdma_staged_bytes_total", "gpurdma_connections", "gpurdma_pinned_bytes"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(c); n != 2*(5+6*5) {
		t.Errorf("%d series", n)
	}
}

// The histogram has all that was done, in buckets of powers of two from a microsecond on.
func TestHistogram(t *testing.T) {
	p := newPair(t, 100)
	for range 20 {
		if err := p.client.Send(limited(t), []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.NewCollector(p.a))
	found := false
	for _, f := range must(reg.Gather())(t) {
		if f.GetName() != "gpurdma_operation_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			want := uint64(0)
			if labelled(m, "nic", "mlx5_0") && labelled(m, "kind", "send") {
				found, want = true, 20
			}
			if h.GetSampleCount() != want || (h.GetSampleSum() > 0) != (want > 0) || len(h.GetBucket()) != 25 {
				t.Errorf("%v", m)
			}
			bound, last := 1e-6, uint64(0)
			for _, b := range h.GetBucket() {
				if d := b.GetUpperBound()/bound - 1; d < -1e-9 || d > 1e-9 || b.GetCumulativeCount() < last || b.GetCumulativeCount() > want {
					t.Errorf("%v, want a bound of %v", b, bound)
				}
				bound, last = 2*bound, b.GetCumulativeCount()
			}
		}
	}
	if !found {
		t.Error("no histogram of messages")
	}
}

func labelled(m *dto.Metric, name, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue() == value
		}
	}
	return false
}

// NICs of the same name count together; a label keeps Fabrics apart.
func TestSeveralFabrics(t *testing.T) {
	p := newPair(t, 100)
	for _, c := range []*gpurdma.Conn{p.client, p.server, p.server} {
		if err := c.Send(limited(t), []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	const both = `# HELP gpurdma_connections Connections that are open.
# TYPE gpurdma_connections gauge
gpurdma_connections{nic="mlx5_0"} 2
gpurdma_connections{nic="mlx5_1"} 0
`
	c := metrics.NewCollector(p.a, p.b)
	if err := testutil.CollectAndCompare(c, strings.NewReader(both), "gpurdma_connections"); err != nil {
		t.Error(err)
	}
	if problems := must(testutil.CollectAndLint(c))(t); len(problems) > 0 {
		t.Error(problems)
	}
	reg := prometheus.NewPedanticRegistry()
	for name, f := range map[string]*gpurdma.Fabric{"a": p.a, "b": p.b} {
		prometheus.WrapRegistererWith(prometheus.Labels{"fabric": name}, reg).MustRegister(metrics.NewCollector(f))
	}
	const apart = `# HELP gpurdma_connections Connections that are open.
# TYPE gpurdma_connections gauge
gpurdma_connections{fabric="a",nic="mlx5_0"} 1
gpurdma_connections{fabric="a",nic="mlx5_1"} 0
gpurdma_connections{fabric="b",nic="mlx5_0"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(apart), "gpurdma_connections"); err != nil {
		t.Error(err)
	}
}

// All counters of a NIC are in its metrics, also those that no test above has brought about.
func TestAllCounters(t *testing.T) {
	p := newPair(t, 1000)
	for range 2 { // the bytes of the second one are wrong when they are compared
		if err := p.client.Write(limited(t), p.remote, p.mine.All(), gpurdma.Notify(nil), gpurdma.Delivered()); err != nil {
			t.Fatal(err)
		}
	}
	must(p.server.ReceiveNotification(limited(t)))(t)
	must(p.theirs.WriteAt([]byte{1}, 500))(t)
	if _, err := p.server.ReceiveNotification(limited(t)); !errors.Is(err, gpurdma.ErrCorrupt) {
		t.Error(err)
	}
	const want = `# HELP gpurdma_checked_blocks_total Blocks of peers' writes that were compared with the peers' sums.
# TYPE gpurdma_checked_blocks_total counter
gpurdma_checked_blocks_total{nic="mlx5_0"} 2
# HELP gpurdma_corrupt_blocks_total Blocks of peers' writes whose bytes were wrong.
# TYPE gpurdma_corrupt_blocks_total counter
gpurdma_corrupt_blocks_total{nic="mlx5_0"} 1
`
	c := metrics.NewCollector(p.b)
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "gpurdma_checked_blocks_total", "gpurdma_corrupt_blocks_total"); err != nil {
		t.Error(err)
	}
	for kind := range p.b.Stats().ByKind {
		if !slices.ContainsFunc(nicmetrics.Kinds, func(k operation.Kind) bool { return k.String() == kind.String() }) {
			t.Errorf("%v has no metrics", kind)
		}
	}
}
