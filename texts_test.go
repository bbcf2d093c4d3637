// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"golang.org/x/sys/unix"
)

// says checks that an error is another one, and has these parts in its text.
func says(t testing.TB, name string, err, is error, parts ...string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Errorf("%s: %v is not %v", name, err, is)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %q does not say %q", name, err, p)
		}
	}
	for _, p := range []string{"EndpointOptions", "NICOptions", "endpoint", "remote buffer", "0x"} {
		if strings.Contains(err.Error(), p) {
			t.Errorf("%s: %q says %q", name, err, p)
		}
	}
}

// A range error says on which side the memory is, and which memory it is.
func TestRangeTexts(t *testing.T) {
	w := newWorld(t, Config{})
	mine := w.host(w.a, 64<<10)
	_, weights := w.lend("weights", 100)
	part := must(mine.Slice(4096, 8192))(t)
	says(t, "local", mine.Range(65530, 128).Err(), ErrRange, "local buffer host (64 KiB)", "offset 65530, length 128, of 65536 bytes")
	says(t, "of a slice", part.Range(0, 8193).Err(), ErrRange, "local buffer host (8 KiB from byte 4096 on)", "of 8192 bytes")
	says(t, "of a range", mine.Range(4096, 8192).Range(8000, 193).Err(), ErrRange, "bytes 4096 to 12287 of local buffer host")
	says(t, "a slice", second(mine.Slice(0, 65537)), ErrRange, "local buffer host", "length 65537")
	says(t, "by CPU", second(mine.WriteAt(make([]byte, 2), 65535)), ErrRange, "local buffer host", "offset 65535, length 2")
	says(t, "the peer's", w.ca.Write(limited(t), weights.Range(96, 8), mine.Range(0, 8)), ErrRange, `the peer's memory "weights"`, "offset 96, length 8, of 100 bytes")
	says(t, "a view", mine.View(SG(Extent{Off: 65000, Len: 1000})).Err(), ErrRange, "local", "up to 66000 of source 0, which has 65536")
	if s := weights.Range(0, 8).name(); s != `bytes 0 to 7 of the peer's memory "weights"` {
		t.Error(s)
	}
	// Without a right.
	m := w.host(w.b, 8)
	w.ok(w.cb.Export("constants", m.All(), ReadOnly))
	constants := must(w.ca.Import(limited(t), "constants"))(t)
	says(t, "no right", w.ca.Write(limited(t), constants, mine.Range(0, 8)), unix.EACCES, `the peer's memory "constants"`, "must share it")
	// Of another connection.
	other, _ := w.connect(Config{})
	says(t, "stale", other.Read(limited(t), mine.Range(0, 8), constants), ErrStaleKey, `the peer's memory "constants"`)
}

// Memory that was left out is named as that.
func TestZeroTexts(t *testing.T) {
	w := newWorld(t, Config{})
	mine := w.host(w.a, 8)
	_, remote := w.lend("memory", 8)
	ctx := limited(t)
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"write, no local":   {w.ca.Write(ctx, remote, Span{}), "zero Span"},
		"write, no remote":  {w.ca.Write(ctx, Remote{}, mine.All()), "zero Remote"},
		"write, neither":    {w.ca.Write(ctx, Remote{}, Span{}), "zero Remote"},
		"read, no local":    {w.ca.Read(ctx, Span{}, remote), "zero Span"},
		"read, no remote":   {w.ca.Read(ctx, mine.All(), Remote{}), "zero Remote"},
		"add, no remote":    {second(w.ca.FetchAdd(ctx, Remote{}, 1)), "zero Remote"},
		"inline, no remote": {second(w.ca.Start(ctx, Op{Kind: OpWrite, Inline: []byte{1}})), "zero Remote"},
		"more local":        {second(w.ca.Start(ctx, Op{Kind: OpWrite, Locals: []Span{mine.All()}})), "zero Remote"},
		"more remote":       {second(w.ca.Start(ctx, Op{Kind: OpWrite, Remotes: []Remote{remote}})), "zero Span"},
		"export":            {w.ca.Export("x", Span{}, ReadWrite), "zero Span"},
		"share":             {second(w.ca.Share(Span{}, ReadWrite)), "zero Span"},
		"a range":           {w.ca.Write(ctx, remote, Span{}.Range(0, 8)), "zero Span"},
		"a remote range":    {w.ca.Write(ctx, Remote{}.Range(0, 8), mine.All()), "zero Remote"},
		"a remote view":     {Remote{}.View(SG(Extent{Len: 1})).Err(), "zero Remote"},
		"encode":            {second(Remote{}.MarshalBinary()), "zero Remote"},
	} {
		says(t, name, c.err, unix.EINVAL, c.says, ";")
	}
	// A notification alone, and nothing at all.
	w.ok(w.ca.Write(ctx, Remote{}, Span{}, Notify([]byte("note"))))
	w.ok(w.ca.Write(ctx, remote.Range(0, 0), Span{}))
	w.ok(w.ca.Write(ctx, remote.Range(0, 0), mine.Range(8, 0)))
}

// The error of a closed object names the object.
func TestClosedTexts(t *testing.T) {
	w := newWorld(t, Config{})
	mine := w.host(w.a, 64)
	_, remote := w.lend("memory", 64)
	for _, is := range []error{net.ErrClosed, os.ErrClosed, ErrClosed} {
		gone := w.host(w.a, 4096)
		w.ok(gone.Close())
		says(t, "retained", gone.Retain(), is, "already closed: buffer host (4 KiB)")
		says(t, "written", w.ca.Write(limited(t), remote, gone.Range(0, 64)), is, "already closed: buffer host (4 KiB)")
		says(t, "read by CPU", second(gone.ReadAt(make([]byte, 1), 0)), is, "already closed: buffer host (4 KiB)")
		q := w.a.NewQueue(1)
		w.ok(q.Close())
		says(t, "polled", second(q.Poll(nil)), is, "already closed: queue")
		ln := must(w.b.Listen("c:1", Config{}))(t)
		w.ok(ln.Close())
		says(t, "accepted", second(ln.Accept(limited(t))), is, "already closed: listener at c:1")
	}
	w.ok(w.ca.Close())
	says(t, "on a closed connection", w.ca.Write(limited(t), remote, mine.All()), ErrClosed, "already closed: connection to b:1")
	says(t, "its end", w.ca.Err(), ErrClosed, "already closed: connection to b:1")
	_ = w.a.Close()
	says(t, "dialled", second(w.a.Dial(limited(t), "b:1", Config{})), ErrClosed, "already closed: fabric of nic-a")
	says(t, "listened", second(w.a.Listen("d:1", Config{})), ErrClosed, "already closed: fabric of nic-a")
	says(t, "allocated", second(w.a.Alloc(limited(t), "host", 8)), ErrClosed, "already closed: fabric of nic-a")
}

// A limit is named as the root package has it.
func TestLimitTexts(t *testing.T) {
	w := newWorld(t, Config{})
	w.a.SetMaxPinned(1)
	says(t, "pinned", second(w.a.Alloc(limited(t), "host", 4096)), ErrLimit, "MaxPinned")
	mine := w.host(w.b, 8)
	w.ok(mine.Retain())
	says(t, "freed", mine.Free(), ErrInUse, "buffer host (8 bytes)")
	if !errors.Is(ErrRange, failure.ErrRange) || !errors.Is(ErrLimit, failure.ErrLimit) || !errors.Is(ErrInUse, failure.ErrInUse) {
		t.Error("they are others than package dmabuf's")
	}
	if s := mine.String(); s != "buffer host (8 bytes), registered with nic-b" {
		t.Error(s)
	}
}

// A call that ends because its context has ended returns the context's error and its cause.
func TestCauses(t *testing.T) {
	w := newWorld(t, Config{Depth: 1})
	mine := w.host(w.a, 8)
	_, remote := w.lend("memory", 8)
	mine.SetReady(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	t.Cleanup(func() { mine.SetReady(nil) })
	busy := must(w.ca.Start(limited(t), Op{Kind: OpWrite, Local: mine.All(), Remote: remote}))(t)
	defer busy.Cancel()
	write := Op{Kind: OpWrite, Local: mine.All(), Remote: remote}
	q := w.a.NewQueue(1)
	newer := errors.New("a newer request")
	for name, call := range map[string]func(context.Context) error{
		"Write":               func(ctx context.Context) error { return w.ca.Write(ctx, remote, mine.All()) },
		"Start":               func(ctx context.Context) error { return second(w.ca.Start(ctx, write)) },
		"Batch":               func(ctx context.Context) error { b := w.ca.Batch(); b.Add(write); return b.Do(ctx) },
		"Receive":             func(ctx context.Context) error { return second(w.ca.Receive(ctx)) },
		"ReceiveNotification": func(ctx context.Context) error { return second(w.ca.ReceiveNotification(ctx)) },
		"Import":              func(ctx context.Context) error { return second(w.ca.Import(ctx, "nothing")) },
		"Accept":              func(ctx context.Context) error { return second(w.ln.Accept(ctx)) },
		"Wait":                func(ctx context.Context) error { return second(q.Wait(ctx, make([]Completion, 1))) },
	} {
		for _, before := range []bool{true, false} {
			ctx, cancel := context.WithCancelCause(context.Background())
			if before {
				cancel(newer)
			}
			ended := make(chan error)
			go func() { ended <- call(ctx) }()
			cancel(newer)
			if err := <-ended; !errors.Is(err, context.Canceled) || !errors.Is(err, newer) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(newer)
	for name, err := range map[string]error{"Dial": second(w.a.Dial(ctx, "b:1", Config{})), "Alloc": second(w.a.Alloc(ctx, "host", 8))} {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, newer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An error of a full queue says what is full, and what to change.
func TestFullTexts(t *testing.T) {
	w := newWorld(t, Config{Depth: 2, Messages: 1})
	mine := w.host(w.a, 8)
	_, remote := w.lend("memory", 8)
	write := Op{Kind: OpWrite, Local: mine.All(), Remote: remote}
	q := w.a.NewQueue(1)
	n, err := q.Post(w.ca, []Op{write, write})
	if n != 1 {
		t.Errorf("%d", n)
	}
	says(t, "the queue", err, ErrQueueFull, "1 operations", "NewQueue", "Poll or Wait")
	q = w.a.NewQueue(9)
	release := make(chan struct{})
	mine.SetReady(func(context.Context) error { <-release; return nil })
	n, err = q.Post(w.ca, []Op{write, write, write})
	if n > 2 {
		t.Errorf("%d", n)
	}
	says(t, "the connection", err, ErrQueueFull, "2 operations", "Config.Depth", "take completions")
	if strings.Contains(err.Error(), "messages") {
		t.Error(err)
	}
	close(release)
	mine.SetReady(nil)
	done := make([]Completion, 9)
	for k := 0; k < n; {
		k += must(q.Wait(limited(t), done))(t)
	}
	// The peer's program has one message, and takes none.
	w.ok(w.ca.Send(limited(t), []byte("first")))
	send := Op{Kind: OpSend, Inline: []byte("more")}
	_, err = q.Post(w.ca, []Op{send, send, send})
	says(t, "messages", err, ErrQueueFull, "2 operations", "the peer's program", "Config.Messages")
	for range 3 {
		must(w.cb.Receive(limited(t)))(t)
	}
	for k := 0; k < 2; {
		k += must(q.Wait(limited(t), done))(t)
	}
}

// Calls whose time is over say what they have waited for.
func TestDeadlinesSayWhatWasAwaited(t *testing.T) {
	w := newWorld(t, Config{})
	for what, call := range map[string]func(context.Context) error{
		"no caller has connected":           func(ctx context.Context) error { _, err := w.ln.Accept(ctx); return err },
		"the peer has sent no message":      func(ctx context.Context) error { _, err := w.ca.Receive(ctx); return err },
		"the peer has sent no notification": func(ctx context.Context) error { _, err := w.ca.ReceiveNotification(ctx); return err },
		"the peer has not exported it":      func(ctx context.Context) error { _, err := w.ca.Import(ctx, "x"); return err },
	} {
		ctx, cancel := context.WithTimeout(limited(t), time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
	}
}
