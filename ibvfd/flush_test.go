// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// Without atomic writes the error names the needed versions, and posting one to
// a queue pair without them says so.
func TestAtomicWriteIsRefused(t *testing.T) {
	s := newScript()
	pd, qp, _ := queuePair(t, s, QPAttr{Type: RC})
	attr := QPAttr{Type: RC, SendCQ: qp.attr.SendCQ, RecvCQ: qp.attr.RecvCQ, AtomicWrite: true}
	s.failWith("createQP", unix.EOPNOTSUPP)
	_, err := pd.CreateQP(attr)
	var e *failure.Error
	if !errors.Is(err, errors.ErrUnsupported) || !errors.As(err, &e) || !strings.Contains(e.Remedy, "libibverbs 44") {
		t.Errorf("%v", err)
	}
	s.failWith("createQP", nil)
	attr.Type = UD
	if _, err := pd.CreateQP(attr); !errors.Is(err, unix.EINVAL) {
		t.Errorf("UD: %v", err)
	}
	if n, err := qp.PostSend([]SendWR{{Op: OpAtomicWrite}}); n != 0 || !errors.As(err, &e) || !strings.Contains(e.Remedy, "QPAttr.AtomicWrite") {
		t.Errorf("%d, %v", n, err)
	}
}

// FLUSH likewise, beside atomic writes or alone.
func TestFlushIsRefused(t *testing.T) {
	s := newScript()
	pd, qp, _ := queuePair(t, s, QPAttr{Type: RC})
	var e *failure.Error
	says := func(err error, words ...string) {
		t.Helper()
		if !errors.As(err, &e) {
			t.Fatalf("%T: %v", err, err)
		}
		for _, w := range words {
			if !strings.Contains(e.Error(), w) {
				t.Errorf("%v lacks %q", err, w)
			}
		}
	}
	attr := QPAttr{Type: RC, SendCQ: qp.attr.SendCQ, RecvCQ: qp.attr.RecvCQ, Flush: true}
	s.failWith("createQP", unix.EOPNOTSUPP)
	_, err := pd.CreateQP(attr)
	if says(err, "Linux 6.2", "libibverbs 45", "leave Flush out"); !errors.Is(err, errors.ErrUnsupported) || strings.Contains(err.Error(), "atomic") {
		t.Errorf("%v", err)
	}
	attr.AtomicWrite = true
	_, err = pd.CreateQP(attr)
	says(err, "libibverbs 44", "leave AtomicWrite out", "libibverbs 45", "leave Flush out")
	s.failWith("createQP", nil)
	attr.Type, attr.AtomicWrite = UD, false
	_, err = pd.CreateQP(attr)
	if says(err, "FLUSH on UD", "RC"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("UD: %v", err)
	}
	_, err = qp.PostSend([]SendWR{{Op: OpFlush, Placement: FlushGlobal}})
	says(err, "work request 0 is a FLUSH", "QPAttr.Flush")
	for bad, words := range map[postRefusal][]string{
		postNoSGE:       {"has SGEs", "FlushLength", "CompareAdd"},
		postNoPlacement: {"no placement", "FlushGlobal", "FlushPersistent"},
		postForeign:     {"inline", "below 64 KiB", "dma-buf", "without SendInline"},
		postUnaligned:   {"atomic", "no multiple of 8"},
	} {
		says(qp.explainPost("ibv_post_send", 3, 8, 1, bad, unix.EINVAL), append(words, "work request 3")...)
	}
}

// A queue pair that may flush lets the peer do so too, unless Access sets its rights.
func TestFlushIsAllowedToThePeer(t *testing.T) {
	const classic = AccessLocalWrite | AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic
	for _, c := range []struct {
		flush     bool
		ask, want Access
	}{
		{false, 0, classic},
		{true, 0, classic | AccessFlushGlobal | AccessFlushPersistent},
		{true, classic, classic},
		{false, classic | AccessFlushGlobal, classic | AccessFlushGlobal},
	} {
		_, qp, v := queuePair(t, newScript(), QPAttr{Type: RC, Flush: c.flush})
		if err := qp.Connect(Endpoint{QPN: 18, MTU: 512}, ConnectAttr{Access: c.ask}); err != nil {
			t.Fatal(err)
		}
		if m := v.modified[len(v.modified)-1]; v.init.Flush != c.flush || Access(m.Access) != c.want {
			t.Errorf("%+v: access %v", c, Access(m.Access))
		}
		// Nothing is flushed where nothing may be read.
		refused := c.want&accessFlush != 0
		if err := qp.Connect(Endpoint{QPN: 18, MTU: 512}, ConnectAttr{Access: c.ask, MaxRead: Zero}); errors.Is(err, unix.EINVAL) != refused || (err != nil) != refused {
			t.Errorf("%+v without READs: %v", c, err)
		}
		if err := qp.ConnectManaged(ManagedAttr{Port: 1, MTU: 512, Access: c.want}); err != nil {
			t.Errorf("%+v without READs, managed: %v", c, err)
		}
		if m := v.modified[len(v.modified)-1]; Access(m.Access) != c.want&^accessFlush {
			t.Errorf("%+v without READs, managed: access %v", c, Access(m.Access))
		}
	}
}
