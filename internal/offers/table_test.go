// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"errors"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// side is a connection's side without a peer: it keeps what would be sent.
type side struct {
	*Table
	rb    *memory.RemoteBuffer
	ended chan struct{}
	tasks sync.WaitGroup

	mu       sync.Mutex
	link     uint32
	sent     []message
	unshared int
	refusal  error
	failed   error
	lose     func() // called before a message is sent; the link is lost during the call
	after    func() // if not nil, called after a message was sent
	lost     bool   // there is no link: messages that would not be sent again are dropped
}

type message struct {
	kind exchange.Kind
	body string
	link uint32
}

func newSide(t *testing.T) *side {
	n := memory.NewNIC(memnic.New(memnic.Manual()).Device("fake0", memnic.Limits{}), memory.NICOptions{})
	b, err := n.AllocHost(64)
	if err != nil {
		t.Fatal(err)
	}
	rb, err := n.Grant(b.All(), ibvfd.AccessRemoteRead, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(rb.Grant().Withdraw(), b.Release(), n.Close()); err != nil {
			t.Error(err)
		}
	})
	s := &side{rb: rb, ended: make(chan struct{})}
	s.Table = New(Config{
		Send: s.send,
		Share: func(memory.Span, ibvfd.Access) (*memory.RemoteBuffer, error) {
			return s.rb, nil
		},
		Unshare: func(*memory.RemoteBuffer) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.unshared++
			return nil
		},
		Permits: func(*memory.RemoteBuffer) error { return nil },
		Refusal: func() error { return s.refusal },
		Fail:    func(why error) { s.failed = why },
		Go:      s.tasks.Go, Life: t.Context(), Ended: s.ended, Timeout: time.Minute,
	})
	return s
}

func (s *side) send(ctx context.Context, kind exchange.Kind, body []byte, next func(uint32) bool) error {
	if lose := s.lose; lose != nil {
		s.lose = nil
		lose()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.lost && next != nil {
		return nil
	}
	if next == nil || next(s.link) {
		s.sent = append(s.sent, message{kind, string(body), s.link})
		if s.after != nil {
			s.after()
		}
	}
	return nil
}

// relink replaces the link.
func (s *side) relink() {
	s.Unlinked()
	s.mu.Lock()
	s.link++
	link := s.link
	s.mu.Unlock()
	s.Relinked(link)
}

func (s *side) messages() []message {
	s.tasks.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.sent
	s.sent = nil
	return list
}

func TestNames(t *testing.T) {
	s, ctx := newSide(t), t.Context()
	for _, name := range []string{"", string(make([]byte, 256))} {
		if err := s.Export(ctx, name, memory.Span{}, 0, as7); !errors.Is(err, failure.ErrRange) {
			t.Errorf("%d bytes: %v", len(name), err)
		}
	}
	if err := s.Unexport(ctx, "kv"); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
	if err := s.Export(ctx, "kv", memory.Span{}, 0, as7); err != nil {
		t.Fatal(err)
	}
	if err := s.Export(ctx, "kv", memory.Span{}, 0, as7); !errors.Is(err, unix.EEXIST) {
		t.Error(err)
	}
	late, cancel := context.WithCancel(ctx)
	defer cancel()
	s.after = cancel
	if err := s.Unexport(late, "kv"); !errors.Is(err, context.Canceled) || s.unshared != 1 {
		t.Errorf("%v, %d unshared", err, s.unshared)
	}
	if err := s.Confirmed(); err != nil {
		t.Error(err)
	}
	if err := s.Confirmed(); !errors.Is(err, exchange.ErrMalformed) {
		t.Error(err)
	}
	s.refusal = os.ErrClosed
	if err := s.Export(ctx, "kv", memory.Span{}, 0, as7); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// An export that could not be sent leaves neither keys nor a name.
func TestExportNotSent(t *testing.T) {
	s := newSide(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Export(over, "kv", memory.Span{}, 0, as7); !errors.Is(err, context.Canceled) || s.unshared != 1 {
		t.Errorf("%v, %d unshared", err, s.unshared)
	}
	if err := s.Export(t.Context(), "kv", memory.Span{}, 0, as7); err != nil {
		t.Error(err)
	}
}

// Another link offers the names again that have memory; those that are being withdrawn are
// confirmed by the loss of the link.
func TestAnotherLink(t *testing.T) {
	s, ctx := newSide(t), t.Context()
	for _, name := range []string{"stays", "goes"} {
		if err := s.Export(ctx, name, memory.Span{}, 0, as7); err != nil {
			t.Fatal(err)
		}
	}
	gone := make(chan error)
	go func() { gone <- s.Unexport(ctx, "goes") }()
	for len(s.messages()) == 0 || s.waits() == 0 {
		time.Sleep(time.Millisecond)
	}
	s.messages()
	s.relink()
	if err := <-gone; err != nil {
		t.Error(err)
	}
	if m := s.messages(); len(m) != 1 || m[0].kind != exchange.MsgOffer || m[0].link != 1 || m[0].body[1:6] != "stays" {
		t.Errorf("%v", m)
	}
	// An export during which the link is replaced is sent over the new one, too.
	s.lose = s.relink
	if err := s.Export(ctx, "late", memory.Span{}, 0, as7); err != nil {
		t.Fatal(err)
	}
	last := message{}
	for _, m := range s.messages() {
		if m.body[1:5] == "late" {
			last = m
		}
	}
	if last.link != 2 {
		t.Errorf("the last offer: %+v", last)
	}
}

// A withdrawal without a link waits for nothing: the peer has forgotten the name with the link.
func TestUnexportWithoutLink(t *testing.T) {
	s, ctx := newSide(t), t.Context()
	if err := s.Export(ctx, "kv", memory.Span{}, 0, as7); err != nil {
		t.Fatal(err)
	}
	s.lost = true
	if err := s.Unexport(ctx, "kv"); err != nil || s.unshared != 1 {
		t.Errorf("%v, %d unshared", err, s.unshared)
	}
	s.lost = false
	s.messages()
	s.relink()
	if m := s.messages(); len(m) != 0 {
		t.Errorf("%v", m)
	}
}

// waits returns the number of withdrawals that are not confirmed.
func (s *side) waits() int {
	s.Table.mu.Lock()
	defer s.Table.mu.Unlock()
	return s.own.withdrawn.Len()
}

// body returns the body of an offer.
func (s *side) body(t *testing.T, name string) []byte {
	body, err := exchange.EncodeOffer(name, s.rb)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestTake(t *testing.T) {
	s, ctx := newSide(t), t.Context()
	for _, name := range []string{"", "kv", ""} {
		if err := s.Take(s.body(t, name)); err != nil {
			t.Fatal(err)
		}
	}
	if rb, err := s.Import(ctx, "kv"); err != nil || rb.Size() != 64 {
		t.Errorf("%v, %v", rb, err)
	}
	for i := range 3 {
		if rb, _ := s.Next(); (rb != nil) != (i < 2) {
			t.Errorf("offer %d: %v", i, rb)
		}
	}
	if err := s.Take(exchange.EncodeWithdrawal("kv")); err != nil {
		t.Error(err)
	}
	if m := s.messages(); len(m) != 1 || m[0].kind != exchange.MsgForgot {
		t.Errorf("%v", m)
	}
	late, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if _, err := s.Import(late, "kv"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if s.peers.bytes != 0 {
		t.Errorf("%d bytes of offers stay", s.peers.bytes)
	}
}

// A peer's offers are bounded, and end with the connection.
func TestBound(t *testing.T) {
	s := newSide(t)
	body := s.body(t, "")
	var err error
	n := 0
	for ; err == nil && n < most; n++ {
		err = s.Take(body)
	}
	if !errors.Is(err, failure.ErrLimit) || n*s.rb.Weight() <= most {
		t.Errorf("after %d offers: %v", n, err)
	}
	if err := s.Take(s.body(t, "kv")); !errors.Is(err, failure.ErrLimit) {
		t.Error(err)
	}
	s.End()
	if err := s.Take(body); err != nil {
		t.Error(err)
	}
	if rb, _ := s.Next(); rb != nil || s.peers.bytes != 0 || len(s.peers.names) != 0 || !reflect.ValueOf(s.peers.list).IsZero() {
		t.Errorf("%v, %d bytes stay", rb, s.peers.bytes)
	}
}

func as7(rb *memory.RemoteBuffer) *memory.RemoteBuffer { return rb.WithID(7) }

// Keys for atomics are withdrawn when the peer has confirmed that, or when the link is lost. Only keys of
// the same ID are.
func TestRecall(t *testing.T) {
	s, ctx := newSide(t), t.Context()
	slow := 0
	recall := func(ctx context.Context, id uint64) error {
		return s.Recall(ctx, "kv", id, func() {
			if slow++; s.unshared != 0 {
				t.Error("the keys were withdrawn before the link was lost")
			}
		})
	}
	export := func() {
		t.Helper()
		s.unshared = 0
		if err := s.ExportAtomics(ctx, "kv", 7, memory.Span{}); err != nil {
			t.Fatal(err)
		}
	}
	export()
	if err := s.ExportAtomics(ctx, "kv", 7, memory.Span{}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("keys were given twice: %v", err)
	}
	if err := errors.Join(recall(ctx, 8), s.Recall(ctx, "another", 7, nil)); err != nil || s.unshared != 0 {
		t.Errorf("another's: %v, %d unshared", err, s.unshared)
	}
	ended := make(chan error)
	go func() { ended <- recall(ctx, 7) }()
	for s.waits() == 0 {
		time.Sleep(time.Millisecond)
	}
	if s.unshared != 0 {
		t.Error("the keys were withdrawn before the peer has confirmed it")
	}
	if err := s.Confirmed(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || s.unshared != 1 || slow != 0 {
		t.Errorf("confirmed: %v, %d unshared, slow %d", err, s.unshared, slow)
	}

	export()
	go func() { ended <- recall(ctx, 7) }()
	for s.waits() == 0 {
		time.Sleep(time.Millisecond)
	}
	s.Unlinked()
	if err := <-ended; err != nil || s.unshared != 1 || slow != 0 {
		t.Errorf("the link is lost: %v, %d unshared, slow %d", err, s.unshared, slow)
	}
	s.Relinked(9)

	export()
	s.Unlinked()
	s.messages()
	if err := recall(ctx, 7); err != nil || s.unshared != 1 || slow != 0 || len(s.messages()) != 0 {
		t.Errorf("without a link: %v, %d unshared, slow %d", err, s.unshared, slow)
	}
	s.Relinked(10)
	if m := s.messages(); len(m) != 0 {
		t.Errorf("offered again: %v", m)
	}

	export()
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := recall(short, 7); err != nil || s.unshared != 1 || slow != 1 {
		t.Errorf("not confirmed: %v, %d unshared, slow %d", err, s.unshared, slow)
	}
}

// The confirmation of a withdrawal of keys for atomics waits until none uses them; a peer cannot make this
// side keep any number of withdrawals.
func TestDrain(t *testing.T) {
	s := newSide(t)
	drained, release := make(chan uint64), make(chan struct{})
	s.cfg.Drain = func(id uint64) {
		drained <- id
		<-release
	}
	name := exchange.ForAtomics("kv")
	if err := s.Take(s.body(t, name)); err != nil || s.FindAtomics("kv", s.rb.ID()) == nil || s.Find("kv", s.rb.ID()) != nil {
		t.Fatal(err)
	}
	if err := s.Take(exchange.EncodeWithdrawal(name)); err != nil || s.FindAtomics("kv", s.rb.ID()) != nil {
		t.Fatal(err)
	}
	if id := <-drained; id != s.rb.ID() {
		t.Errorf("%d was drained, not %d", id, s.rb.ID())
	}
	s.mu.Lock()
	if len(s.sent) != 0 {
		t.Errorf("confirmed before the end: %v", s.sent)
	}
	s.mu.Unlock()
	var err error
	n := 0
	for ; err == nil && n <= 2*mostOwed; n++ {
		err = s.Take(exchange.EncodeWithdrawal("none"))
	}
	if !errors.Is(err, failure.ErrLimit) {
		t.Errorf("after %d withdrawals: %v", n, err)
	}
	close(release)
	if m := s.messages(); len(m) != n || m[0].kind != exchange.MsgForgot { // and the first one
		t.Errorf("%d confirmations of %d", len(m), n)
	}
}
