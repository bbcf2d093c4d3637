// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/memstream"
)

// Close does not claim that writes have landed, or cannot land any more, if it does not know.
func TestCloseWithoutAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		cut     func(w *world)
		unknown bool
	}{
		"all is cut":        {func(w *world) { w.net.Cut(w.da, w.db); w.net.CutExchanges(memstream.Silent) }, true},
		"only RDMA is cut":  {func(w *world) { w.net.Cut(w.da, w.db) }, false},
		"nothing is cut":    {func(*world) {}, false},
		"the hosts are cut": {func(w *world) { w.net.CutExchanges(memstream.Silent) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{PeerTimeout: time.Second})
			_, remote := w.lend("memory", 64)
			mine := w.host(w.a, 64)
			c.cut(w)
			x := must(w.ca.Start(limited(t), Op{Kind: OpWrite, Local: mine.All(), Remote: remote}))(t)
			first, second := make(chan error, 1), make(chan error, 1)
			began := time.Now()
			go func() { first <- w.ca.Close() }()
			go func() { second <- w.ca.Close() }()
			a, b := <-first, <-second
			if errors.Is(a, ErrOutcomeUnknown) != c.unknown || !c.unknown && a != nil || a != b {
				t.Errorf("%v and %v after %v", a, b, time.Since(began))
			}
			if again := w.ca.Close(); again != a {
				t.Errorf("then %v", again)
			}
			<-x.Done()
			if (x.Err() == nil) != (name == "nothing is cut" || name == "the hosts are cut") {
				t.Errorf("the write: %v", x.Err())
			}
			w.net.MendExchanges()
		})
	}
}

// Both sides may close at once.
func TestBothClose(t *testing.T) {
	w := newWorld(t, Config{})
	for range 50 {
		a, b := w.connect(Config{})
		done := make(chan error)
		go func() { done <- b.Close() }()
		w.ok(a.Close())
		w.ok(<-done)
	}
}

// A source that does not become ready holds up the operations behind it, and neither Cancel nor
// Close.
func TestReady(t *testing.T) {
	w := newWorld(t, Config{})
	theirs, remote := w.lend("memory", 64)
	mine := w.host(w.a, 64)
	w.put(mine, bytes.Repeat([]byte{7}, 64))
	ready := make(chan error)
	mine.SetReady(func(ctx context.Context) error {
		select {
		case err := <-ready:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	write := Op{Kind: OpWrite, Local: mine.All(), Remote: remote}
	x := must(w.ca.Start(limited(t), write))(t)
	behind := must(w.ca.Start(limited(t), Op{Kind: OpWrite, Inline: []byte{9}, Remote: remote.Range(0, 1)}))(t)
	select {
	case <-x.Done():
		t.Error("it did not wait")
	case <-behind.Done():
		t.Error("it overtook")
	case <-time.After(20 * time.Millisecond):
	}
	ready <- nil
	<-x.Done()
	<-behind.Done()
	if got := w.get(theirs, 2); x.Err() != nil || behind.Err() != nil || !bytes.Equal(got, []byte{9, 7}) {
		t.Error(x.Err(), behind.Err(), got)
	}
	failed := must(w.ca.Start(limited(t), write))(t)
	broken := errors.New("the stream is broken")
	ready <- broken
	<-failed.Done()
	if !errors.Is(failed.Err(), broken) {
		t.Error(failed.Err())
	}
	if x := must(w.ca.Start(limited(t), write))(t); !x.Cancel() {
		t.Error("not withdrawn")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := w.ca.Write(ctx, remote, mine.All()); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	last := must(w.ca.Start(limited(t), write))(t)
	w.ok(w.ca.Close())
	<-last.Done()
	if !errors.Is(last.Err(), ErrClosed) {
		t.Error(last.Err())
	}
}

// A transfer that the NIC does not have is withdrawn: no byte lands, and no notification.
func TestCancel(t *testing.T) {
	w := newWorld(t, Config{Messages: 1})
	theirs, remote := w.lend("memory", 8)
	w.ok(w.ca.Send(limited(t), []byte("the only credit")))
	note := must(w.ca.Start(limited(t), Op{Kind: OpWrite, Inline: []byte{1}, Remote: remote.Range(0, 1), Notify: true, Note: []byte("no")}))(t)
	behind := must(w.ca.Start(limited(t), Op{Kind: OpWrite, Inline: []byte{2}, Remote: remote.Range(1, 1)}))(t)
	fenced := must(w.ca.Start(limited(t), Op{Kind: OpRead, Local: w.host(w.a, 1).All(), Remote: remote.Range(0, 1), Fence: true}))(t)
	if !note.Cancel() || note.Cancel() {
		t.Error("not withdrawn, or twice")
	}
	<-note.Done()
	<-behind.Done()
	<-fenced.Done()
	if !errors.Is(note.Err(), context.Canceled) || behind.Err() != nil || fenced.Err() != nil || behind.Cancel() {
		t.Error(note.Err(), behind.Err(), fenced.Err())
	}
	if got := w.get(theirs, 2); !bytes.Equal(got, []byte{0, 2}) {
		t.Errorf("%v has landed", got)
	}
	must(w.cb.Receive(limited(t)))(t)
	w.ok(w.ca.Write(limited(t), remote.Range(0, 1), w.host(w.a, 1).All(), Notify([]byte("yes"))))
	if p := must(w.cb.ReceiveNotification(limited(t)))(t); string(p) != "yes" {
		t.Errorf("%q", p)
	}
}

// Free refuses while a peer has a key, and Close gives the buffer up.
func TestFree(t *testing.T) {
	w := newWorld(t, Config{})
	m, remote := w.lend("memory", 64)
	if err := m.Free(); !errors.Is(err, failure.ErrInUse) {
		t.Error(err)
	}
	w.ok(w.cb.Unexport("memory"))
	w.ok(m.Retain())
	if err := m.Free(); !errors.Is(err, failure.ErrInUse) {
		t.Error(err)
	}
	w.ok(m.Release())
	s := must(m.Slice(8, 8))(t)
	if err := m.Free(); !errors.Is(err, failure.ErrInUse) {
		t.Error(err)
	}
	w.ok(s.Close())
	w.ok(m.Free())
	w.ok(m.Close())
	if _, err := m.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrClosed) && err == nil {
		t.Error("still open")
	}
	if err := w.ca.Write(limited(t), remote.Range(0, 1), w.host(w.a, 1).All()); err == nil {
		t.Error("a withdrawn key works")
	}
	<-w.ca.Done()
}

// A closed fabric has closed all that was its own, and refuses the rest.
func TestFabricClose(t *testing.T) {
	w := newWorld(t, Config{})
	m, _ := w.lend("memory", 64)
	w.ok(w.b.Close())
	w.ok(w.b.Close())
	<-w.ca.Done()
	if err := w.ca.Err(); !errors.Is(err, ErrPeerGone) {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"Alloc":  second(w.b.Alloc(limited(t), "host", 8)),
		"Listen": second(w.b.Listen("b:2", Config{})),
		"Dial":   second(w.b.Dial(limited(t), "a:1", Config{})),
		"Accept": second(w.ln.Accept(limited(t))),
		"Retain": m.Retain(),
		"Send":   w.cb.Send(limited(t), nil),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
