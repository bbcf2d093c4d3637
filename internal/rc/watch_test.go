// SPDX-License-Identifier: Apache-2.0

package rc

import (
	"cmp"
	"errors"
	"iter"
	"os"
	"slices"
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
				links = append(links, &verbsLink{cq: cqs[i], qps: [Queues]*ibvfd.QP{qps[2*i], qps[2*i+1]}, a: Attr{Broke: broke(i)}})
			}
			left := &verbsLink{cq: cqs[2], qps: [Queues]*ibvfd.QP{qps[4], qps[4]}, a: Attr{Broke: broke(2)}}
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
			l := &verbsLink{qps: [Queues]*ibvfd.QP{q, new(ibvfd.QP)}, a: Attr{Broke: func(why error) { broken = why }}}
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
