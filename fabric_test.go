// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// One side lends memory, and the other writes, reads, adds and swaps there.
func TestHello(t *testing.T) {
	w := newWorld(t, Config{Hello: []byte("hello")})
	theirs, remote := w.lend("weights", 1<<16)
	mine := w.host(w.a, 1<<16)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	w.put(mine, want)
	w.ok(w.ca.Write(limited(t), remote.All(), mine.All()))
	if !bytes.Equal(w.get(theirs, len(want)), want) {
		t.Error("other bytes have arrived")
	}
	clear(want)
	w.put(mine, want)
	w.ok(w.ca.Read(limited(t), mine.Range(16, 32), remote.Range(0, 32)))
	if got := string(w.get(mine, 48)[16:]); got != "0123456789abcdef0123456789abcdef" {
		t.Errorf("read %q", got)
	}
	w.ok(w.ca.Write(limited(t), remote.Range(0, 8), mine.Range(0, 8)))
	for i := range uint64(3) {
		if old := must(w.ca.FetchAdd(limited(t), remote.Range(0, 8), 5))(t); old != 5*i {
			t.Errorf("the old value is %d, want %d", old, 5*i)
		}
	}
	if old := must(w.ca.CompareSwap(limited(t), remote.Range(0, 8), 15, 1))(t); old != 15 {
		t.Errorf("compared with %d", old)
	}
	if old := must(w.ca.FetchAdd(limited(t), remote.Range(0, 8), 0))(t); old != 1 {
		t.Errorf("the swap left %d", old)
	}
	if got := string(w.cb.Peer().Hello) + string(w.ca.Peer().Hello); got != "hellohello" {
		t.Errorf("the peers said %q", got)
	}
	if s := w.ca.Stats(); s.Done != 8 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
	w.ok(w.ca.Close())
	<-w.cb.Done()
	if err := w.cb.Err(); !errors.Is(err, ErrPeerGone) {
		t.Errorf("the peer's end: %v", err)
	}
	if err := w.ca.Err(); !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) || !errors.Is(err, os.ErrClosed) {
		t.Errorf("the own end: %v", err)
	}
	if err := w.ca.Write(limited(t), remote, mine.All()); !errors.Is(err, ErrClosed) {
		t.Errorf("a write after Close: %v", err)
	}
	w.ok(w.cb.Close())
}

// Messages and notifications arrive in order, and the end comes after them.
func TestMessagesBeforeTheEnd(t *testing.T) {
	w := newWorld(t, Config{Messages: 4})
	theirs, remote := w.lend("memory", 64)
	mine := w.host(w.a, 64)
	done := make(chan error, 1)
	const n = 20
	go func() {
		var err error
		for i := range n {
			_, _ = mine.WriteAt([]byte{byte(i)}, int64(i))
			err = errors.Join(err, w.ca.Send(limited(t), fmt.Append(nil, "message ", i)),
				w.ca.Write(limited(t), remote.Range(int64(i), 1), mine.Range(int64(i), 1), Notify(fmt.Append(nil, "note ", i))))
		}
		done <- errors.Join(err, w.ca.Close())
	}()
	for i := range n {
		if got := string(must(w.cb.Receive(limited(t)))(t)); got != fmt.Sprint("message ", i) {
			t.Errorf("%q is message %d", got, i)
		}
		if got := string(must(w.cb.ReceiveNotification(limited(t)))(t)); got != fmt.Sprint("note ", i) {
			t.Errorf("%q is note %d", got, i)
		}
		if got := w.get(theirs, n)[i]; got != byte(i) {
			t.Errorf("byte %d is %d", i, got)
		}
	}
	w.ok(<-done)
	if p, err := w.cb.Receive(limited(t)); !errors.Is(err, ErrPeerGone) {
		t.Errorf("after the last message: %q, %v", p, err)
	}
}

// A sender waits for a receiver that takes no messages, and nothing is lost.
func TestSlowReceiver(t *testing.T) {
	w := newWorld(t, Config{Messages: 3})
	for i := range 3 {
		w.ok(w.ca.Send(limited(t), []byte{byte(i)}))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := w.ca.Send(ctx, []byte{99}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a message too many: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- w.ca.Send(limited(t), []byte{3}) }()
	for i := range 4 {
		if p := must(w.cb.Receive(limited(t)))(t); !bytes.Equal(p, []byte{byte(i)}) {
			t.Errorf("%v is message %d", p, i)
		}
	}
	w.ok(<-done)
}
