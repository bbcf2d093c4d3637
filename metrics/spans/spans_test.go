// SPDX-License-Identifier: Apache-2.0

package spans_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/metrics/spans"
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

// connected returns both ends of a connection, and the Fabric of both.
func connected(t testing.TB) (f *gpurdma.Fabric, client, server *gpurdma.Conn) {
	f = fabrictest.New()
	t.Cleanup(func() { _ = f.Close() })
	ln := must(f.Listen("127.0.0.1:1", gpurdma.Config{}))(t)
	client = must(f.Dial(limited(t), "127.0.0.1:1", gpurdma.Config{}))(t)
	return f, client, must(ln.Accept(limited(t)))(t)
}

// Each blocking call makes a span, as a child of the context's, with its bytes or its error.
func TestSpans(t *testing.T) {
	f, client, server := connected(t)
	exporter := tracetest.NewInMemoryExporter()
	p := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	c, s := spans.Wrap(client, p), spans.Wrap(server, p)
	mine, theirs := must(f.Alloc(limited(t), "host", 100))(t), must(f.Alloc(limited(t), "host", 100))(t)
	if err := s.Export("memory", theirs.All(), gpurdma.ReadWrite|gpurdma.Atomic); err != nil {
		t.Fatal(err)
	}
	ctx, parent := p.Tracer("test").Start(limited(t), "parent")
	remote := must(c.Import(ctx, "memory"))(t)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(c.Write(ctx, remote, mine.All(), gpurdma.Notify([]byte("note"))))
	must(s.ReceiveNotification(ctx))(t)
	ok(c.Read(ctx, mine.Range(0, 10), remote.Range(0, 10)))
	if old := must(c.FetchAdd(ctx, remote.Range(0, 8), 7))(t); old != 0 {
		t.Error(old)
	}
	if old := must(c.CompareSwap(ctx, remote.Range(0, 8), 7, 8))(t); old != 7 {
		t.Error(old)
	}
	ok(c.Send(ctx, []byte("hello")))
	if m := must(s.Receive(ctx))(t); string(m) != "hello" {
		t.Errorf("%q", m)
	}
	b := c.Batch()
	b.Write(remote, mine.All())
	ok(b.Do(ctx))
	if err := c.Write(ctx, remote.Range(0, 1), mine.All()); !errors.Is(err, gpurdma.ErrRange) {
		t.Error(err)
	}
	parent.End()

	nics := attribute.StringSlice("gpurdma.nics", []string{"mem0"})
	bytes := func(n int64) []attribute.KeyValue {
		return []attribute.KeyValue{nics, attribute.Int64("gpurdma.bytes", n)}
	}
	none := []attribute.KeyValue{nics}
	want := []struct {
		name       string
		kind       trace.SpanKind
		attributes []attribute.KeyValue
		status     codes.Code
	}{
		{"gpurdma import", trace.SpanKindClient, none, codes.Unset},
		{"gpurdma write", trace.SpanKindClient, bytes(100), codes.Unset},
		{"gpurdma receive notification", trace.SpanKindConsumer, bytes(4), codes.Unset},
		{"gpurdma read", trace.SpanKindClient, bytes(10), codes.Unset},
		{"gpurdma fetch-and-add", trace.SpanKindClient, bytes(8), codes.Unset},
		{"gpurdma compare-and-swap", trace.SpanKindClient, bytes(8), codes.Unset},
		{"gpurdma send", trace.SpanKindProducer, bytes(5), codes.Unset},
		{"gpurdma receive", trace.SpanKindConsumer, bytes(5), codes.Unset},
		{"gpurdma batch", trace.SpanKindClient, none, codes.Unset},
		{"gpurdma write", trace.SpanKindClient, none, codes.Error},
	}
	got := exporter.GetSpans()
	if len(got) != len(want)+1 { // and the parent
		t.Fatalf("%d spans", len(got))
	}
	for i, w := range want {
		x := got[i]
		if x.Name != w.name || x.SpanKind != w.kind || !slices.Equal(x.Attributes, w.attributes) || x.Status.Code != w.status || (len(x.Events) == 1) != (w.status == codes.Error) ||
			x.Parent.SpanID() != parent.SpanContext().SpanID() || x.EndTime.Before(x.StartTime) {
			t.Errorf("%+v, want %+v", x, w)
		}
	}
}

// Without a provider there are no spans, and the calls are what they were.
func TestOff(t *testing.T) {
	_, client, server := connected(t)
	c := spans.Wrap(client, nil)
	if err := c.Send(limited(t), []byte("hello")); err != nil {
		t.Error(err)
	}
	if m := must(server.Receive(limited(t)))(t); string(m) != "hello" {
		t.Errorf("%q", m)
	}
}
