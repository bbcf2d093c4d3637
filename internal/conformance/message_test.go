// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Messages of both sides arrive in order, at the same time.
func testMessages(t *testing.T, s *setting) {
	p := s.pair(t)
	n := testenv.Count(500)
	e := errs{t: t}
	for _, x := range [][2]*gpurdma.Conn{{p.client, p.server}, {p.server, p.client}} {
		e.do(1, func(int) error {
			for i := range n {
				if err := x[0].Send(limited(t), fmt.Append(nil, i)); err != nil {
					return err
				}
			}
			return nil
		})
		e.do(1, func(int) error {
			for i := range n {
				if m, err := x[1].Receive(limited(t)); err != nil || string(m) != fmt.Sprint(i) {
					return fmt.Errorf("message %d: %q, %w", i, m, err)
				}
			}
			return nil
		})
	}
	e.wg.Wait()
}

// A message of the longest size arrives, and a longer one is refused, by the smaller limit of
// both sides.
func testMessageSizes(t *testing.T, s *setting) {
	for _, sizes := range [][2]int{{0, 0}, {2000, 100}, {100, 2000}, {64 << 10, 64 << 10}, {1, 2000}} {
		p := s.pairWith(t, gpurdma.Config{MessageSize: sizes[0]}, gpurdma.Config{MessageSize: sizes[1]})
		most := min(sizes[0], sizes[1])
		if most == 0 {
			most = 1 << 10
		}
		mine, _, remote := p.both(8)
		for _, x := range [][2]*gpurdma.Conn{{p.client, p.server}, {p.server, p.client}} {
			want := bytes.Repeat([]byte{1, 2, 3, 4, 5}, most/5+1)[:most]
			ok(t, x[0].Send(limited(t), want))
			got := must(x[1].Receive(limited(t)))(t)
			if !bytes.Equal(got, want) {
				t.Errorf("%v: %d bytes", sizes, len(got))
			}
			clear(got) // it is the caller's
			if err := x[0].Send(limited(t), make([]byte, most+1)); !errors.Is(err, failure.ErrLimit) {
				t.Errorf("%v: %v", sizes, err)
			}
		}
		if err := p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify(make([]byte, most+1))); !errors.Is(err, failure.ErrLimit) {
			t.Errorf("%v: a note: %v", sizes, err)
		}
		if most >= 8 { // its messages have 5
			p.alive()
		}
		if err := p.server.Export("again", mine.All(), all); err == nil {
			t.Error("a buffer of another fabric was exported")
		}
		ok(t, p.ln.Close())
	}
	for _, cfg := range []gpurdma.Config{{MessageSize: 64<<10 + 1}, {MessageSize: -1}, {Messages: -1}, {Messages: 1 << 20}, {Depth: -1}} {
		if ln, err := s.fabric(t).Listen(s.listen, cfg); !errors.Is(err, failure.ErrRange) {
			t.Errorf("%+v: %v", cfg, err)
			if err == nil {
				_ = ln.Close()
			}
		}
	}
}

// A receiver that is slow stops the sender, for longer than a silent peer is waited for. It is
// not taken for dead, and nothing is lost.
func testSlowReceiver(t *testing.T, s *setting) {
	const messages, n = 4, 40
	cfg := gpurdma.Config{Messages: messages, PeerTimeout: 300 * time.Millisecond}
	p := s.pairWith(t, cfg, cfg)
	mine, theirs, remote := p.both(8)
	put(t, mine, []byte("written!"))
	rails := len(p.client.Rails())
	if rails > 1 {
		p.allUp(rails)
	}
	large, _, known := p.both(1 << 20)
	p.overAll(known, large.All(), rails)
	sent := make(chan int, n)
	e := errs{t: t}
	e.do(1, func(int) error {
		for i := range n {
			if err := p.client.Send(limited(t), fmt.Append(nil, i)); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			sent <- i
		}
		return p.client.Write(limited(t), remote, mine.All())
	})
	for len(sent) < messages {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(3 * cfg.PeerTimeout)
	if len(sent) != messages {
		t.Errorf("%d messages were sent to a receiver that takes %d", len(sent), messages)
	}
	if rails > 1 { // by which it goes
		ok(t, p.client.Read(limited(t), large.All(), known))
	} else if err := p.client.Read(soon(t), large.All(), known); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an operation behind a message that waits: %v", err)
	}
	for i := range n {
		if m := must(p.server.Receive(limited(t)))(t); string(m) != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m)
		}
	}
	e.wg.Wait()
	p.settle()
	same(t, "written after the messages", theirs, []byte("written!"))
	p.alive()
}

// So with notifications; both kinds together have Config.Messages.
func testSlowNotified(t *testing.T, s *setting) {
	const messages, n = 3, 15
	p := s.pairWith(t, gpurdma.Config{}, gpurdma.Config{Messages: messages})
	mine, theirs, remote := p.both(n)
	e := errs{t: t}
	e.do(1, func(int) error {
		for i := range int64(n) {
			if _, err := mine.WriteAt([]byte{byte(i + 1)}, i); err != nil {
				return err
			}
			if err := p.client.Write(limited(t), remote.Range(i, 1), mine.Range(i, 1), gpurdma.Notify([]byte{byte(i)})); err != nil {
				return err
			}
			if err := p.client.Send(limited(t), []byte{byte(i)}); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range n {
		time.Sleep(time.Millisecond)
		if p := must(p.server.ReceiveNotification(limited(t)))(t); !bytes.Equal(p, []byte{byte(i)}) {
			t.Fatalf("note %d is %v", i, p)
		}
		if got := content(t, theirs); got[i] != byte(i+1) {
			t.Fatalf("at note %d the memory is %v", i, got)
		}
		if p := must(p.server.Receive(limited(t)))(t); !bytes.Equal(p, []byte{byte(i)}) {
			t.Fatalf("message %d is %v", i, p)
		}
	}
	e.wg.Wait()
}

// Several goroutines may take notifications; each comes once. The iterator ends with the
// context, or with the connection.
func testNotifications(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, _, remote := p.both(8)
	const n = 60
	got := make(chan string, n)
	var ends [3]error
	e := errs{t: t}
	e.do(len(ends), func(i int) error {
		for note, err := range p.server.Notifications(limited(t)) {
			if err != nil {
				ends[i] = err
				continue
			}
			got <- string(note)
		}
		return nil
	})
	for i := range n {
		ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify(fmt.Append(nil, i))))
	}
	seen := map[string]bool{}
	for range n {
		select {
		case x := <-got:
			seen[x] = true
		case <-limited(t).Done():
			t.Fatalf("%d of %d notifications", len(seen), n)
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d notifications", len(seen), n)
	}
	_, err := p.client.Receive(soon(t))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing was received: %v", err)
	}
	for _, err := range p.client.Notifications(soon(t)) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("no notification: %v", err)
		}
	}
	ok(t, p.client.Close())
	e.wg.Wait()
	for _, err := range ends {
		if !errors.Is(err, gpurdma.ErrPeerGone) {
			t.Errorf("the end: %v", err)
		}
	}
}

// A message whose context ends while it waits for the receiver's program is not sent.
func testSendExpires(t *testing.T, s *setting) {
	p := s.pairWith(t, gpurdma.Config{}, gpurdma.Config{Messages: 2})
	mine, _, remote := p.both(8)
	for i := range 2 {
		ok(t, p.client.Send(limited(t), fmt.Append(nil, i)))
	}
	if err := p.client.Send(soon(t), []byte("late")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a third message: %v", err)
	}
	if err := p.client.Write(soon(t), remote, mine.All(), gpurdma.Notify([]byte("late"))); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a notification: %v", err)
	}
	for _, want := range []string{"0", "1", "2", "3"} {
		if m := must(p.server.Receive(limited(t)))(t); string(m) != want {
			t.Errorf("message %q, want %s", m, want)
		}
		switch want {
		case "0":
			ok(t, p.client.Send(limited(t), []byte("2")))
		case "1":
			ok(t, p.client.Send(limited(t), []byte("3")))
		}
	}
	ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify([]byte("in time"))))
	if n := must(p.server.ReceiveNotification(limited(t)))(t); string(n) != "in time" {
		t.Errorf("note %q", n)
	}
	p.alive()
}
