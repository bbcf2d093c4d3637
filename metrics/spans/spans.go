// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/gpurdma/gpurdma"
)

// Name is the name of the tracer.
const Name = "github.com/gpurdma/gpurdma"

// Conn is a connection whose blocking calls make spans. Its other methods are those of gpurdma.Conn.
type Conn struct {
	*gpurdma.Conn
	tracer trace.Tracer
	nics   attribute.KeyValue
}

// Wrap returns a connection whose blocking calls make spans, by a provider; nil stands for that of the
// process (otel.GetTracerProvider), which makes none unless the program has set one.
func Wrap(c *gpurdma.Conn, p trace.TracerProvider) *Conn {
	if p == nil {
		p = otel.GetTracerProvider()
	}
	var nics []string
	for _, r := range c.Rails() {
		nics = append(nics, r.NIC)
	}
	return &Conn{c, p.Tracer(Name), attribute.StringSlice("gpurdma.nics", nics)}
}

// call runs a call, which returns how many bytes it has moved, in a span. Without bytes, n is below 0.
func (c *Conn) call(ctx context.Context, name string, kind trace.SpanKind, do func(context.Context) (n int64, err error)) error {
	ctx, span := c.tracer.Start(ctx, "gpurdma "+name, trace.WithSpanKind(kind), trace.WithAttributes(c.nics))
	defer span.End()
	n, err := do(ctx)
	switch {
	case err != nil:
		span.RecordError(err)
		span.SetStatus(codes.Error, name+" has failed")
	case n >= 0:
		span.SetAttributes(attribute.Int64("gpurdma.bytes", n))
	}
	return err
}

// Write is gpurdma.Conn.Write.
func (c *Conn) Write(ctx context.Context, to gpurdma.Remote, from gpurdma.Span, opts ...gpurdma.Option) error {
	return c.call(ctx, gpurdma.OpWrite.String(), trace.SpanKindClient, func(ctx context.Context) (int64, error) {
		return from.Size(), c.Conn.Write(ctx, to, from, opts...)
	})
}

// Read is gpurdma.Conn.Read.
func (c *Conn) Read(ctx context.Context, into gpurdma.Span, from gpurdma.Remote, opts ...gpurdma.Option) error {
	return c.call(ctx, gpurdma.OpRead.String(), trace.SpanKindClient, func(ctx context.Context) (int64, error) {
		return from.Size(), c.Conn.Read(ctx, into, from, opts...)
	})
}

// FetchAdd is gpurdma.Conn.FetchAdd.
func (c *Conn) FetchAdd(ctx context.Context, to gpurdma.Remote, add uint64) (old uint64, err error) {
	err = c.call(ctx, gpurdma.OpFetchAdd.String(), trace.SpanKindClient, func(ctx context.Context) (int64, error) {
		old, err = c.Conn.FetchAdd(ctx, to, add)
		return 8, err
	})
	return old, err
}

// CompareSwap is gpurdma.Conn.CompareSwap.
func (c *Conn) CompareSwap(ctx context.Context, to gpurdma.Remote, compare, swap uint64) (old uint64, err error) {
	err = c.call(ctx, gpurdma.OpCompareSwap.String(), trace.SpanKindClient, func(ctx context.Context) (int64, error) {
		old, err = c.Conn.CompareSwap(ctx, to, compare, swap)
		return 8, err
	})
	return old, err
}

// Send is gpurdma.Conn.Send.
func (c *Conn) Send(ctx context.Context, message []byte) error {
	return c.call(ctx, gpurdma.OpSend.String(), trace.SpanKindProducer, func(ctx context.Context) (int64, error) {
		return int64(len(message)), c.Conn.Send(ctx, message)
	})
}

// Receive is gpurdma.Conn.Receive.
func (c *Conn) Receive(ctx context.Context) (message []byte, err error) {
	err = c.call(ctx, "receive", trace.SpanKindConsumer, func(ctx context.Context) (int64, error) {
		message, err = c.Conn.Receive(ctx)
		return int64(len(message)), err
	})
	return message, err
}

// ReceiveNotification is gpurdma.Conn.ReceiveNotification.
func (c *Conn) ReceiveNotification(ctx context.Context) (note []byte, err error) {
	err = c.call(ctx, "receive notification", trace.SpanKindConsumer, func(ctx context.Context) (int64, error) {
		note, err = c.Conn.ReceiveNotification(ctx)
		return int64(len(note)), err
	})
	return note, err
}

// Import is gpurdma.Conn.Import.
func (c *Conn) Import(ctx context.Context, name string) (remote gpurdma.Remote, err error) {
	err = c.call(ctx, "import", trace.SpanKindClient, func(ctx context.Context) (int64, error) {
		remote, err = c.Conn.Import(ctx, name)
		return -1, err
	})
	return remote, err
}

// Batch is gpurdma.Conn.Batch.
func (c *Conn) Batch() *Batch { return &Batch{c.Conn.Batch(), c} }

// Batch is a batch whose Do makes a span, one for all operations.
type Batch struct {
	*gpurdma.Batch
	conn *Conn
}

// Do is gpurdma.Batch.Do.
func (b *Batch) Do(ctx context.Context) error {
	return b.conn.call(ctx, "batch", trace.SpanKindClient, func(ctx context.Context) (int64, error) { return -1, b.Batch.Do(ctx) })
}
