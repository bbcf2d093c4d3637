// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
)

const peerAddr = "10.9.0.2:7471"

// closing closes at the end, twice: the second time must do nothing.
func closing(t *testing.T, c interface{ Close() error }) {
	t.Cleanup(func() {
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("close %T: %v", c, err)
			}
		}
	})
}

// resolvedID is an ID of the script that Connect can be called on.
func resolvedID(t *testing.T, s *script) *ID {
	t.Helper()
	t.Cleanup(func() { s.nothingLeft(t) })
	id, err := resolve(t.Context(), s, peerAddr, "")
	if err != nil {
		t.Fatal(err)
	}
	closing(t, id)
	return id
}

// requested is an ID of the script that Accept can be called on, and its
// listener.
func requested(t *testing.T, s *script) (*Listener, *ID) {
	t.Helper()
	l := listening(t, s)
	s.request(0)
	id, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closing(t, id)
	return l, id
}

func listening(t *testing.T, s *script) *Listener {
	t.Helper()
	t.Cleanup(func() { s.nothingLeft(t) })
	l, err := listen(s, ":0")
	if err != nil {
		t.Fatal(err)
	}
	closing(t, l)
	return l
}

// request raises one on a channel.
func (s *script) request(channel int) {
	ch := s.chans[channel]
	ch.push(event{typ: eventConnectRequest, id: ch.identifier(), asked: depths{4, 3}, data: []byte("hello")})
}

func TestConnect(t *testing.T) {
	s := newScript()
	id := resolvedID(t, s)
	if id.Device() != "rxe0" || id.Port() != 1 || id.LocalAddr().String() != "10.9.0.1:4000" || id.RemoteAddr().String() != peerAddr {
		t.Errorf("%s port %d, %v to %v", id.Device(), id.Port(), id.LocalAddr(), id.RemoteAddr())
	}
	qp := &scriptQP{}
	data, err := id.connectTo(t.Context(), qp, Param{PrivateData: []byte("hi"), InitiatorDepth: 3, Timeout: 20, Access: ibvfd.AccessRemoteRead})
	if err != nil || string(data) != "yes" {
		t.Fatalf("%q, %v", data, err)
	}
	want := connParam{data: []byte("hi"), depths: depths{16, 3}, retryCount: 6, rnrRetry: 7, qpn: 17}
	if got := s.last; string(got.data) != "hi" || got.depths != want.depths || got.retryCount != 6 || got.rnrRetry != 7 || got.qpn != 17 {
		t.Errorf("sent %+v, want %+v", got, want)
	}
	// The attributes are rdma_cm's, but for what was asked for.
	if qp.got.Timeout != 20 || qp.got.MaxRead != 5 || qp.got.MaxDestRead != 6 || qp.got.Access != ibvfd.AccessRemoteRead || qp.got.MinRNRTimer != 12 || !s.called("establish") {
		t.Errorf("queue pair got %+v", qp.got)
	}
	if _, err := id.connectTo(t.Context(), qp, Param{}); !errors.Is(err, ErrSpent) {
		t.Errorf("connected again: %v", err)
	}
	if err := id.Reject(nil); !errors.Is(err, ErrSpent) {
		t.Errorf("rejected after all: %v", err)
	}
	if err := id.Disconnect(t.Context()); err != nil || qp.errs == 0 {
		t.Errorf("disconnect: %v, queue pair told %d times", err, qp.errs)
	}
	if err := id.Wait(t.Context()); err != nil {
		t.Errorf("wait for what has ended: %v", err)
	}
}

func TestAccept(t *testing.T) {
	s := newScript()
	l, id := requested(t, s)
	if string(id.PrivateData()) != "hello" || l.Device() != "rxe0" || l.Addr().Port() != 4000 {
		t.Errorf("%q, %s, %v", id.PrivateData(), l.Device(), l.Addr())
	}
	if _, err := id.connectTo(t.Context(), &scriptQP{}, Param{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("connect of a request: %v", err)
	}
	qp := &scriptQP{}
	if err := id.acceptWith(t.Context(), qp, Param{ResponderResources: 2}); err != nil {
		t.Fatal(err)
	}
	// No more READs than the peer would have, or the Param.
	if want := (depths{2, 3}); s.last.depths != want || qp.got.MaxDestRead != 2 || qp.got.MaxRead != 3 {
		t.Errorf("depths %+v, want %+v; queue pair got %+v", s.last.depths, want, qp.got)
	}
	s.chans[1].push(event{typ: eventDisconnected})
	if err := id.Wait(t.Context()); err != nil {
		t.Errorf("wait: %v", err)
	}
}

// An answer of the kernel, the peer or the library comes out with the call, the
// address, the errno and what to do.
func TestConnectErrors(t *testing.T) {
	for name, c := range map[string]struct {
		fail  map[string]error
		raise map[string]event
		is    error
		words string
	}{
		"no device":            {raise: map[string]event{"resolveAddr": {typ: eventAddrError, status: -int(unix.ENODEV)}}, is: unix.ENODEV, words: "rdma link"},
		"no device, said late": {raise: map[string]event{}, is: unix.ENODEV, words: "rdma link"},
		"no route":             {fail: map[string]error{"resolveAddr": unix.ENETUNREACH}, is: unix.ENETUNREACH, words: "ip route get"},
		"no answer to ARP":     {raise: map[string]event{"resolveAddr": {typ: eventAddrError, status: -int(unix.ETIMEDOUT)}}, is: unix.ETIMEDOUT, words: "does not answer"},
		"route":                {raise: map[string]event{"resolveRoute": {typ: eventRouteError, status: -int(unix.EINVAL)}}, is: unix.EINVAL, words: "rdma_resolve_route"},
		"route call":           {fail: map[string]error{"resolveRoute": unix.EHOSTUNREACH}, is: unix.EHOSTUNREACH, words: "ip route get"},
		"silence":              {raise: map[string]event{"connect": {typ: eventUnreachable, status: -int(unix.ETIMEDOUT)}}, is: unix.ETIMEDOUT, words: "4791"},
		"nobody":               {raise: map[string]event{"connect": {typ: eventRejected, status: 8}}, words: "no program listens"},
		"stale":                {raise: map[string]event{"connect": {typ: eventRejected, status: 10}}, words: "connect again"},
		"unknown reason":       {raise: map[string]event{"connect": {typ: eventRejected, status: 99}}, words: "reason 99"},
		"iWARP's nobody":       {raise: map[string]event{"connect": {typ: eventRejected, status: -int(unix.ECONNREFUSED)}}, is: unix.ECONNREFUSED, words: "no program listens"},
		"connect error":        {raise: map[string]event{"connect": {typ: eventConnectError, status: -int(unix.EIO)}}, is: unix.EIO, words: "connect error"},
		"gone at once":         {raise: map[string]event{"connect": {typ: eventDisconnected}}, is: ErrDisconnected, words: "has ended"},
		"device gone":          {raise: map[string]event{"connect": {typ: eventDeviceRemoval}}, is: unix.ENODEV, words: "being removed"},
		"nonsense":             {raise: map[string]event{"connect": {typ: eventMulticastJoin}}, is: unix.EPROTO, words: "multicast join"},
		"an event of no name":  {raise: map[string]event{"connect": {typ: 77}}, is: unix.EPROTO, words: "event 77"},
		"connect call":         {fail: map[string]error{"connect": unix.EINVAL}, is: unix.EINVAL, words: "rdma_connect"},
		"attributes":           {fail: map[string]error{"attributes": unix.EINVAL}, is: unix.EINVAL, words: "rdma_init_qp_attr"},
		"establish":            {fail: map[string]error{"establish": unix.EIO}, is: unix.EIO, words: "rdma_establish"},
		"events":               {fail: map[string]error{"event": unix.EIO}, is: unix.EIO, words: "EIO"},
		"no identifier":        {fail: map[string]error{"newID": unix.ENOMEM}, is: unix.ENOMEM, words: "rdma_create_id"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			defer s.nothingLeft(t)
			for k, v := range c.fail {
				s.fail[k] = v
			}
			for k, v := range c.raise {
				s.raise[k] = v
			}
			if name == "no device, said late" {
				s.dev = device{}
			}
			id, err := resolve(t.Context(), s, peerAddr, "10.9.0.1")
			if err == nil {
				_, err = id.connectTo(t.Context(), &scriptQP{}, Param{})
				if again, err := id.connectTo(t.Context(), &scriptQP{}, Param{}); !errors.Is(err, ErrSpent) {
					t.Errorf("a second try: %v, %v", again, err)
				}
				closing(t, id)
			}
			var e *failure.Error
			if !errors.As(err, &e) || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), peerAddr) {
				t.Errorf("%v; want %v, %q and the address", err, c.is, c.words)
			}
			if r := (*RejectedError)(nil); errors.As(err, &r) != (c.is == nil) {
				t.Errorf("%v is a rejection: %+v", err, r)
			}
			if err := closed(id); err != nil {
				t.Error(err)
			}
		})
	}
}

func closed(id *ID) error {
	if id == nil {
		return nil
	}
	return id.Close()
}

func TestRejectedWithData(t *testing.T) {
	s := newScript()
	s.raise["connect"] = event{typ: eventRejected, status: int(ReasonConsumer), data: []byte("full")}
	id := resolvedID(t, s)
	_, err := id.connectTo(t.Context(), &scriptQP{}, Param{})
	var r *RejectedError
	if !errors.As(err, &r) || r.Reason != ReasonConsumer || string(r.PrivateData) != "full" || !strings.Contains(err.Error(), "program that listens refused") {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestReject(t *testing.T) {
	s := newScript()
	_, id := requested(t, s)
	if err := id.Reject(make([]byte, MaxRejectData+1)); !errors.Is(err, failure.ErrLimit) {
		t.Errorf("too much: %v", err)
	}
	if err := id.Reject([]byte("full")); err != nil || string(s.rejected) != "full" {
		t.Errorf("%q, %v", s.rejected, err)
	}
	if err := id.acceptWith(t.Context(), &scriptQP{}, Param{}); !errors.Is(err, ErrSpent) {
		t.Errorf("accepted after all: %v", err)
	}
}

func TestListenErrors(t *testing.T) {
	for call, n := range map[string]unix.Errno{"bind": unix.EADDRINUSE, "listen": unix.ENOMEM, "newID": unix.ENOMEM, "device": unix.EIO} {
		s := newScript()
		s.fail[call] = n
		l, err := listen(s, "127.0.0.1:7471")
		if l != nil || !errors.Is(err, n) || !strings.Contains(err.Error(), "127.0.0.1:7471") {
			t.Errorf("%s: %v", call, err)
		}
		s.nothingLeft(t)
	}
	for n, words := range map[unix.Errno]string{
		unix.EADDRINUSE: "rdma resource show cm_id", unix.EACCES: "1024", unix.EADDRNOTAVAIL: "rdma link show", unix.ENODEV: "rdma link show",
	} {
		s := newScript()
		s.fail["bind"] = n
		if _, err := listen(s, ":7471"); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v: %v, want %q in it", n, err, words)
		}
		s.nothingLeft(t)
	}
	for _, addr := range []string{"", "10.0.0.1", "10.0.0.1:port", "[fe80::1%none]:1"} {
		s := newScript()
		if l, err := listen(s, addr); err == nil {
			t.Errorf("listens at %q: %v", addr, l.Addr())
		}
		s.nothingLeft(t)
	}
}

// A request that cannot be taken ends alone.
func TestListenerSurvivesARequest(t *testing.T) {
	s := newScript()
	l := listening(t, s)
	for _, call := range []string{"channel", "migrate", "device"} {
		s.fail[call] = unix.EMFILE
		s.request(0)
		if id, err := l.Accept(t.Context()); !errors.Is(err, unix.EMFILE) {
			t.Errorf("%s: %v, %v", call, id, err)
		}
		delete(s.fail, call)
	}
	s.chans[0].push(event{typ: eventTimewaitExit})
	s.request(0)
	id, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closing(t, id)
}

// An accept that goes wrong: the peer's confirmation does not come, the queue
// pair will not, the call is refused.
func TestAcceptErrors(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		call string
		fail error
		ev   event
		qp   error
		is   error
	}{
		"no confirmation": {ev: event{typ: eventUnreachable, status: -int(unix.ETIMEDOUT)}, is: unix.ETIMEDOUT},
		"peer went":       {ev: event{typ: eventDisconnected}, is: ErrDisconnected},
		"call":            {call: "accept", fail: unix.EINVAL, is: unix.EINVAL},
		"attributes":      {call: "attributes", fail: unix.EINVAL, is: unix.EINVAL},
		"queue pair":      {qp: broken, is: broken},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			if c.ev.typ != 0 {
				s.raise["accept"] = c.ev
			}
			if c.call != "" {
				s.fail[c.call] = c.fail
			}
			_, id := requested(t, s)
			if err := id.acceptWith(t.Context(), &scriptQP{err: c.qp}, Param{}); !errors.Is(err, c.is) {
				t.Errorf("%v, want %v", err, c.is)
			}
		})
	}
}

func TestParamLimits(t *testing.T) {
	s := newScript()
	id := resolvedID(t, s)
	for _, p := range []Param{{RetryCount: 8}, {RNRRetry: 8}, {Timeout: 32}, {MinRNRTimer: 32}, {PrivateData: make([]byte, MaxConnectData+1)}} {
		if _, err := id.connectTo(t.Context(), &scriptQP{}, p); err == nil || s.called("connect") {
			t.Errorf("%+v: %v", p, err)
		}
	}
	// Nothing was sent: the ID is good still.
	if _, err := id.connectTo(t.Context(), &scriptQP{}, Param{PrivateData: make([]byte, MaxConnectData)}); err != nil {
		t.Error(err)
	}
}

// A wait ends with its context, and with a Close.
func TestWaits(t *testing.T) {
	s := newScript()
	delete(s.raise, "connect")
	ctx, cancel := context.WithCancel(t.Context())
	id := resolvedID(t, s)
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := id.connectTo(ctx, &scriptQP{}, Param{}); !errors.Is(err, context.Canceled) {
			t.Errorf("connect: %v", err)
		}
	})
	for !s.called("connect") {
		time.Sleep(time.Millisecond)
	}
	cancel()
	all.Wait()

	l := listening(t, s)
	all.Go(func() {
		if _, err := l.Accept(t.Context()); !errors.Is(err, os.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
	})
	time.Sleep(time.Millisecond)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if _, err := l.Accept(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("accept on what is closed: %v", err)
	}
	if err := id.Close(); err != nil {
		t.Error(err)
	}
	if _, err := id.Context(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("context of what is closed: %v", err)
	}
	if err := id.Wait(t.Context()); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("wait without a connection: %v", err)
	}
	if err := id.Disconnect(t.Context()); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("disconnect without a connection: %v", err)
	}
}

// Every call that waits learns that the device went, and so does a later one.
func TestDeviceRemoved(t *testing.T) {
	s := newScript()
	id := resolvedID(t, s)
	qp := &scriptQP{}
	if _, err := id.connectTo(t.Context(), qp, Param{}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := id.Wait(t.Context()); !errors.Is(err, unix.ENODEV) {
				t.Errorf("wait: %v", err)
			}
		})
	}
	s.chans[0].push(event{typ: eventDeviceRemoval})
	all.Wait()
	s.fail["disconnect"] = unix.EINVAL // of a connection that has ended
	if err := id.Disconnect(t.Context()); !errors.Is(err, unix.ENODEV) {
		t.Errorf("disconnect: %v", err)
	}
	if err := id.Close(); err != nil || qp.errs == 0 {
		t.Errorf("close: %v, queue pair told %d times", err, qp.errs)
	}
	s.nothingLeft(t)
}

// A Close waits for the queue pair to be up, and then ends it: it does not leave
// one that works.
func TestCloseBesideQueuePair(t *testing.T) {
	s := newScript()
	_, id := requested(t, s)
	qp := &scriptQP{}
	qp.during = func() {
		if id.mu.TryLock() {
			id.mu.Unlock()
			t.Error("a Close may run beside it")
		}
	}
	if err := id.acceptWith(t.Context(), qp, Param{}); err != nil {
		t.Fatal(err)
	}
	if err := id.Close(); err != nil || qp.errs != 1 {
		t.Errorf("close: %v, queue pair told %d times", err, qp.errs)
	}
}

// A Context keeps the ID open, as a destruction that fails does.
func TestCloseInUse(t *testing.T) {
	s := newScript()
	id := resolvedID(t, s)
	if _, err := id.Context(); err != nil { // the script's is nil, and never closed
		t.Fatal(err)
	}
	if err := id.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("close: %v", err)
	}
	id.contexts.Store(0)
	s.fail["destroy"] = unix.EBUSY
	if err := id.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("close: %v", err)
	}
	delete(s.fail, "destroy")
}

// Why there is no event channel is seen at the node itself.
func TestExplainOpen(t *testing.T) {
	old := node
	defer func() { node = old }()
	dir := t.TempDir()
	for _, c := range []struct {
		name  string
		mode  os.FileMode
		err   unix.Errno
		is    error
		words string
	}{
		{"missing", 0, unix.EPERM, unix.ENOENT, "modprobe rdma_ucm"},
		{"no devices", 0o600, unix.ENODEV, unix.ENODEV, "lists no RDMA device"},
		{"descriptors", 0, unix.EMFILE, unix.EMFILE, "RLIMIT_NOFILE"},
		{"other", 0o600, unix.EIO, unix.EIO, "rdma_create_event_channel"},
	} {
		node = filepath.Join(dir, c.name)
		if c.mode != 0 {
			if err := os.WriteFile(node, nil, c.mode); err != nil {
				t.Fatal(err)
			}
		}
		s := newScript()
		s.fail["channel"] = c.err
		_, err := resolve(t.Context(), s, peerAddr, "")
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), node) {
			t.Errorf("%s: %v; want %v and %q", c.name, err, c.is, c.words)
		}
		s.nothingLeft(t)
	}
}
