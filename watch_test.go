// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"cmp"
	"errors"
	"iter"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// scripted yields events, and then an error.
func scripted(end error, events ...ibvfd.Event) iter.Seq2[ibvfd.Event, error] {
	return func(yield func(ibvfd.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		yield(ibvfd.Event{}, end)
	}
}

// Each event ends the links that it concerns, and no others.
func TestWatch(t *testing.T) {
	cqs := []*ibvfd.CQ{new(ibvfd.CQ), new(ibvfd.CQ), new(ibvfd.CQ)}
	qps := []*ibvfd.QP{new(ibvfd.QP), new(ibvfd.QP), new(ibvfd.QP), new(ibvfd.QP), new(ibvfd.QP)}
	gone := &ibvfd.RegError{Errno: unix.EIO}
	for name, c := range map[string]struct {
		events []ibvfd.Event
		end    error
		broken []int // indexes of links
	}{
		"nothing":               {end: unix.EBADF},
		"port":                  {events: []ibvfd.Event{{Type: ibvfd.EventPortErr, Port: 1}, {Type: ibvfd.EventPortActive, Port: 1}, {Type: ibvfd.EventGIDChange, Port: 1}}, end: unix.EBADF},
		"a writing queue":       {events: []ibvfd.Event{{Type: ibvfd.EventQPFatal, QP: qps[0]}}, end: unix.EBADF, broken: []int{0}},
		"a reading queue":       {events: []ibvfd.Event{{Type: ibvfd.EventQPAccessErr, QP: qps[3]}}, end: unix.EBADF, broken: []int{1}},
		"a request":             {events: []ibvfd.Event{{Type: ibvfd.EventQPRequestErr, QP: qps[2]}}, end: unix.EBADF, broken: []int{1}},
		"a completion queue":    {events: []ibvfd.Event{{Type: ibvfd.EventCQErr, CQ: cqs[1]}}, end: unix.EBADF, broken: []int{1}},
		"harmless":              {events: []ibvfd.Event{{Type: ibvfd.EventCommEst, QP: qps[0]}, {Type: ibvfd.EventSQDrained, QP: qps[1]}}, end: unix.EBADF},
		"somebody else's":       {events: []ibvfd.Event{{Type: ibvfd.EventQPFatal, QP: qps[4]}, {Type: ibvfd.EventCQErr, CQ: cqs[2]}}, end: unix.EBADF},
		"closed meanwhile":      {events: []ibvfd.Event{{Type: ibvfd.EventQPFatal}, {Type: ibvfd.EventCQErr}}, end: unix.EBADF},
		"the device":            {events: []ibvfd.Event{{Type: ibvfd.EventDeviceFatal, Port: 0}}, end: unix.EBADF, broken: []int{0, 1}},
		"the device, by ending": {end: gone, broken: []int{0, 1}},
		"the device, both ways": {events: []ibvfd.Event{{Type: ibvfd.EventDeviceFatal}}, end: gone, broken: []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var heard []ibvfd.Event
			w := &watch{
				nic: "roce0", heard: func(e ibvfd.Event) { heard = append(heard, e) },
				state: func(*ibvfd.QP) (ibvfd.QPState, error) { return ibvfd.StateErr, nil },
			}
			var broken [3]error
			broke := func(i int) func(error) {
				return func(why error) { broken[i] = cmp.Or(broken[i], why) }
			}
			var links []*verbsLink
			for i := range 2 {
				links = append(links, &verbsLink{cq: cqs[i], qps: [queues]*ibvfd.QP{qps[2*i], qps[2*i+1]}, a: linkAttr{broke: broke(i)}})
			}
			left := &verbsLink{cq: cqs[2], qps: [queues]*ibvfd.QP{qps[4], qps[4]}, a: linkAttr{broke: broke(2)}}
			for _, l := range append(links, left) {
				if err := w.add(l); err != nil {
					t.Fatal(err)
				}
			}
			w.remove(left)
			w.remove(left)
			w.listen(scripted(c.end, c.events...))
			w.ended.Wait()
			if !slices.Equal(heard, c.events) {
				t.Errorf("heard %v of %v", heard, c.events)
			}
			for i := range links {
				want := slices.Contains(c.broken, i)
				if (broken[i] != nil) != want {
					t.Errorf("link %d: %v; want broken: %v", i, broken[i], want)
				}
				var e *EventError
				if want && len(c.events) > 0 && (!errors.As(broken[i], &e) || e.Event != c.events[0] || e.NIC != "roce0") {
					t.Errorf("link %d: %v does not name the event", i, broken[i])
				}
			}
			if broken[2] != nil {
				t.Errorf("a link that was closed: %v", broken[2])
			}
			if err := w.add(left); (err != nil) != (len(c.broken) == 2) {
				t.Errorf("a link after that: %v", err)
			}
		})
	}
}

// A queue pair that has refused a request is not ended until its NIC has answered, or will not
// answer.
func TestWatchWaitsForTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		answer int // the look at which the state is the error state; 0: never
		err    error
		looks  int
	}{
		"at once":   {1, nil, 1},
		"later":     {7, nil, 7},
		"never":     {0, nil, answerLooks},
		"destroyed": {0, os.ErrClosed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			q := new(ibvfd.QP)
			var broken error
			l := &verbsLink{qps: [queues]*ibvfd.QP{q, new(ibvfd.QP)}, a: linkAttr{broke: func(why error) { broken = why }}}
			looks := 0
			w := &watch{state: func(asked *ibvfd.QP) (ibvfd.QPState, error) {
				if looks++; asked != q || broken != nil {
					t.Errorf("look %d is at %p, want %p of a link that is not broken: %v", looks, asked, q, broken)
				}
				if looks == c.answer {
					return ibvfd.StateErr, nil
				}
				return ibvfd.StateRTS, c.err
			}}
			if err := w.add(l); err != nil {
				t.Fatal(err)
			}
			w.listen(scripted(unix.EBADF, ibvfd.Event{Type: ibvfd.EventQPAccessErr, QP: q}))
			w.ended.Wait()
			if looks != c.looks || broken == nil {
				t.Errorf("%d looks, then %v; want %d and the event", looks, broken, c.looks)
			}
		})
	}
}

// A connection that its NIC gives up ends without a completion: a sleeping goroutine and the
// peer get the error, and a new connection works.
func TestLinkGivenUp(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	w.ok(w.a.Recv(mine.All(), w.ab, "receive"))
	ended := waiting(limited(t), w.a)
	asleep(w.a, 1)
	fatal := &EventError{"fake0", ibvfd.Event{Type: ibvfd.EventQPAccessErr, QP: new(ibvfd.QP)}}
	w.a.linkTo(w.ab).broke(fatal)
	c := <-ended
	var why *EventError
	if c.n != 1 || c.err != nil || c.Context != "receive" || !errors.Is(c.Err, ErrNotConnected) || !errors.As(c.Err, &why) || why != fatal {
		t.Errorf("%+v, want the receive with %v", c, fatal)
	}
	if c.Err != nil && (!strings.Contains(c.Err.Error(), "fake0 reports: QP access error: QP 0") || !strings.HasSuffix(c.Err.Error(), "; "+remedyOf(fatal))) {
		t.Errorf("%v does not say what the NIC reports, and what to do", c.Err)
	}
	if err := w.a.Send(mine.All(), w.ab, nil); !errors.As(err, &why) || !errors.Is(err, ErrNotConnected) {
		t.Errorf("a send after that: %v", err)
	}
	w.lost(w.b, w.ba)
	w.connect()
	w.ok(w.b.Recv(theirs.All(), w.ba, "again"))
	w.ok(w.a.Send(mine.All(), w.ab, "again"))
	w.done(w.a, OpSend, "again")
	w.done(w.b, OpRecv, "again")
}

// It also ends if no goroutine takes completions.
func TestLinkGivenUpUnwatched(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	ended := make(chan error)
	go func() {
		_, err := w.a.Offered(limited(t), w.ab)
		ended <- err
	}()
	fatal := &EventError{"fake0", ibvfd.Event{Type: ibvfd.EventDeviceFatal}}
	w.a.linkTo(w.ab).broke(fatal)
	var why *EventError
	if err := <-ended; !errors.As(err, &why) || !errors.Is(err, ErrNotConnected) {
		t.Errorf("waiting for an offer ended with %v", err)
	}
	w.lost(w.b, w.ba)
}

// NICOptions.Event may call the NIC, even while the NIC is closed.
func TestEventDuringClose(t *testing.T) {
	inside, closing := make(chan struct{}), make(chan struct{})
	var n *NIC
	dev := &listeningDevice{fakeDevice: &fakeDevice{fabric: newFabric()}, done: make(chan struct{})}
	n = newNIC(dev, NICOptions{})
	go func() {
		defer close(dev.done)
		close(inside)
		<-closing
		n.Stats()
	}()
	<-inside
	go func() {
		for dev.closes.Load() == 0 {
			runtime.Gosched()
		}
		close(closing)
	}()
	for range 2 {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// listeningDevice has a goroutine while it is open.
type listeningDevice struct {
	*fakeDevice
	closes atomic.Int32
	done   chan struct{}
}

func (l *listeningDevice) close() error {
	l.closes.Add(1)
	return nil
}

func (l *listeningDevice) ended() { <-l.done }

// Flush does not wait for READs of queue pairs that the NIC has given up.
func TestFlushGivenUp(t *testing.T) {
	s := inMemory(t)
	n := s.open(t, NICOptions{})
	b := s.kinds[1].make(t, n, 64)
	b.core.gpu = true
	if err := b.Flush(limited(t)); err != nil {
		t.Fatal(err)
	}
	n.readBack.link.(*fakeLink).broke(unix.EIO)
	if err := b.Flush(limited(t)); !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
	if err := b.Flush(limited(t)); err != nil {
		t.Errorf("with new ones: %v", err)
	}
}
