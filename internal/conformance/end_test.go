// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Close is nil when all is settled. The other side learns of it, and the own side's calls
// return ErrClosed.
func testClose(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, _, remote := p.both(8)
	ok(t, p.client.Write(limited(t), remote, mine.All()))
	if p.client.Err() != nil || p.server.Err() != nil {
		t.Errorf("%v, %v", p.client.Err(), p.server.Err())
	}
	waiting := make(chan error)
	go func() {
		_, err := p.client.Receive(limited(t))
		waiting <- err
	}()
	time.Sleep(time.Millisecond)
	for range 2 {
		ok(t, p.client.Close())
	}
	if err := <-waiting; !errors.Is(err, gpurdma.ErrClosed) {
		t.Errorf("a Receive that has waited: %v", err)
	}
	for _, want := range []error{gpurdma.ErrClosed, net.ErrClosed, os.ErrClosed} {
		for what, err := range map[string]error{
			"Err":                 gone(t, p.client),
			"Write":               p.client.Write(limited(t), remote, mine.All()),
			"Read":                p.client.Read(limited(t), mine.All(), remote),
			"FetchAdd":            second(p.client.FetchAdd(limited(t), remote, 1)),
			"Send":                p.client.Send(limited(t), nil),
			"Receive":             second(p.client.Receive(limited(t))),
			"ReceiveNotification": second(p.client.ReceiveNotification(limited(t))),
			"Export":              p.client.Export("x", mine.All(), all),
			"Import":              second(p.client.Import(limited(t), "x")),
			"Share":               second(p.client.Share(mine.All(), all)),
			"Start":               second(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpSend})),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
			if errors.Is(err, gpurdma.ErrPeerGone) {
				t.Errorf("%s: the peer has not gone: %v", what, err)
			}
		}
	}
	for what, err := range map[string]error{
		"Err":     gone(t, p.server),
		"Receive": second(p.server.Receive(limited(t))),
		"Send":    p.server.Send(limited(t), nil),
		"Import":  second(p.server.Import(limited(t), "x")),
	} {
		if !errors.Is(err, gpurdma.ErrPeerGone) || !errors.Is(err, gpurdma.ErrPeerClosed) || errors.Is(err, gpurdma.ErrClosed) {
			t.Errorf("the peer: %s: %v", what, err)
		}
	}
	ok(t, p.server.Close())
	if _, err := p.server.Receive(limited(t)); !errors.Is(err, gpurdma.ErrPeerGone) {
		t.Errorf("the reason of the end has changed: %v", err)
	}
}

// A connection that has failed says why to the peer, which takes it for no ordinary end.
func testFailureTold(t *testing.T, s *setting) {
	p := s.carelessPair(t, gpurdma.Config{})
	mine, theirs := host(t, p.a, 8), host(t, p.b, 8)
	ok(t, p.server.Export("soon gone", theirs.All(), all))
	remote := must(p.client.Import(limited(t), "soon gone"))(t)
	ok(t, p.server.Unexport("soon gone"))
	if err := p.client.Write(limited(t), remote, mine.All()); err == nil {
		t.Error("a write to memory that was withdrawn")
	}
	gone(t, p.client)
	err := gone(t, p.server)
	if !errors.Is(err, gpurdma.ErrPeerGone) || errors.Is(err, gpurdma.ErrPeerClosed) || !strings.Contains(err.Error(), "remote access error") {
		t.Errorf("the peer of a failed connection: %v", err)
	}
}

// Messages that the peer has sent before its Close arrive before the end.
func testLastWords(t *testing.T, s *setting) {
	p := s.pair(t)
	for range testenv.Count(10) {
		mine, theirs, remote := p.both(1000)
		const n = 10
		for i := range n {
			put(t, mine, bytes.Repeat([]byte{byte(i)}, 1000))
			ok(t, p.client.Send(limited(t), fmt.Append(nil, i)))
			ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify(fmt.Append(nil, i))))
		}
		ok(t, p.client.Close())
		gone(t, p.server)
		same(t, "at the end", theirs, content(t, mine))
		for i := range n {
			if m, err := p.server.Receive(limited(t)); err != nil || string(m) != fmt.Sprint(i) {
				t.Fatalf("message %d after the end: %q, %v", i, m, err)
			}
			if m, err := p.server.ReceiveNotification(limited(t)); err != nil || string(m) != fmt.Sprint(i) {
				t.Fatalf("note %d after the end: %q, %v", i, m, err)
			}
		}
		if _, err := p.server.Receive(limited(t)); !errors.Is(err, gpurdma.ErrPeerGone) {
			t.Errorf("after the last message: %v", err)
		}
		if _, err := p.server.ReceiveNotification(limited(t)); !errors.Is(err, gpurdma.ErrPeerGone) {
			t.Errorf("after the last notification: %v", err)
		}
		ok(t, p.server.Close())
		p.client, p.server = p.connect(gpurdma.Config{})
	}
}

// Close under traffic of both sides returns nil, because the peer confirms it. All calls
// return, and the bytes of writes that have succeeded are in the memory.
func testCloseUnderTraffic(t *testing.T, s *setting) {
	p := s.pair(t)
	for _, k := range s.kinds {
		const n, size = 20, 5000
		mine, theirs := k.alloc(t, p.a, size), k.alloc(t, p.b, n*size)
		put(t, mine, bytes.Repeat([]byte{7}, size))
		remote, back := p.export(theirs.All(), all), k.alloc(t, p.b, size)
		backRemote := func() gpurdma.Remote {
			ok(t, p.client.Export("back", k.alloc(t, p.a, size).All(), all))
			return must(p.server.Import(limited(t), "back"))(t)
		}()
		var wg sync.WaitGroup
		var landed [n]bool
		for i := range int64(n) {
			wg.Go(func() {
				for {
					err := p.client.Write(limited(t), remote.Range(i*size, size), mine.All())
					if err != nil {
						if !errors.Is(err, gpurdma.ErrClosed) {
							t.Errorf("%s: the closing side: %v", k.name, err)
						}
						return
					}
					landed[i] = true
				}
			})
			wg.Go(func() {
				for {
					if err := p.server.Write(limited(t), backRemote, back.All()); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
		start := time.Now()
		ok(t, p.client.Close())
		if took := time.Since(start); took > bound/2 {
			t.Errorf("%s: Close took %v", k.name, took)
		}
		wg.Wait()
		gone(t, p.server)
		got := content(t, theirs)
		for i := range n {
			if landed[i] && !bytes.Equal(got[i*size:(i+1)*size], bytes.Repeat([]byte{7}, size)) {
				t.Errorf("%s: a write has succeeded, and its bytes are not there", k.name)
			}
		}
		ok(t, p.server.Close())
		p.client, p.server = p.connect(gpurdma.Config{})
	}
}

// A Fabric's Close ends all that is open, and frees it.
func testFabricClose(t *testing.T, s *setting) {
	p := s.pair(t)
	c2, _ := p.connect(gpurdma.Config{})
	mine, theirs, remote := p.both(8)
	slice := must(mine.Slice(0, 4))(t)
	ok(t, mine.Retain())
	open := gated(t, mine)
	x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}))(t)
	var ends [4]chan error
	for i, f := range []func() error{
		func() error { return second(p.client.Receive(limited(t))) },
		func() error { return second(c2.Import(limited(t), "never")) },
		func() error { return second(p.ln.Accept(limited(t))) },
		func() error {
			_, err := p.server.ReceiveNotification(limited(t))
			return err
		},
	} {
		ends[i] = make(chan error, 1)
		go func() { ends[i] <- f() }()
	}
	time.Sleep(time.Millisecond)
	ok(t, p.a.Close())
	open()
	<-x.Done()
	if !errors.Is(x.Err(), gpurdma.ErrClosed) {
		t.Errorf("a transfer: %v", x.Err())
	}
	for i, want := range map[int]error{0: gpurdma.ErrClosed, 1: gpurdma.ErrClosed, 3: gpurdma.ErrPeerGone} {
		if err := <-ends[i]; !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
	for what, err := range map[string]error{
		"Alloc":    second(p.a.Alloc(limited(t), "host", 8)),
		"Dial":     second(p.a.Dial(limited(t), p.ln.Addr().String(), gpurdma.Config{})),
		"Listen":   second(p.a.Listen("127.0.0.1:0", gpurdma.Config{})),
		"WriteAt":  second(mine.WriteAt([]byte("1"), 0)),
		"ReadAt":   second(slice.ReadAt(make([]byte, 1), 0)),
		"Slice":    second(mine.Slice(0, 1)),
		"Retain":   mine.Retain(),
		"Write":    p.client.Write(limited(t), remote, mine.All()),
		"Release":  mine.Release(),
		"c2.Write": c2.Send(limited(t), nil),
	} {
		if !errors.Is(err, gpurdma.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ok(t, mine.Close())
	ok(t, p.b.Close())
	if err := <-ends[2]; !errors.Is(err, gpurdma.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := theirs.ReadAt(make([]byte, 1), 0); !errors.Is(err, gpurdma.ErrClosed) {
		t.Errorf("ReadAt: %v", err)
	}
}
