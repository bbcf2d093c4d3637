// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"net/netip"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// script is a manager that answers what the test says, and counts what it has
// made.
type script struct {
	mu       sync.Mutex
	fail     map[string]error // by call: "resolveAddr"
	raise    map[string]event // by call
	channels int
	ids      int
	calls    []string
	last     connParam
	rejected []byte
	attr     ibvfd.ManagedAttr
	dev      device
	chans    []*scriptChannel
}

func newScript() *script {
	return &script{
		fail: map[string]error{}, dev: device{"rxe0", 1, depths{128, 128}},
		attr: ibvfd.ManagedAttr{Port: 1, MTU: 1024, MaxRead: 5, MaxDestRead: 6, Timeout: 19, Access: 0xf},
		raise: map[string]event{
			"resolveAddr": {typ: eventAddrResolved}, "resolveRoute": {typ: eventRouteResolved},
			"connect": {typ: eventConnectResponse, data: []byte("yes")}, "accept": {typ: eventEstablished},
			"disconnect": {typ: eventDisconnected},
		},
	}
}

// nothingLeft reports what was made and not destroyed.
func (s *script) nothingLeft(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels != 0 || s.ids != 0 {
		t.Errorf("%d channels and %d identifiers left behind", s.channels, s.ids)
	}
}

// do is a call: its failure, or the event that it raises.
func (s *script) do(ch *scriptChannel, name string) error {
	s.mu.Lock()
	s.calls = append(s.calls, name)
	err, ev, ok := s.fail[name], s.raise[name], false
	if err == nil {
		_, ok = s.raise[name]
	}
	s.mu.Unlock()
	if ok {
		ch.push(ev)
	}
	return err
}

func (s *script) called(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.calls, name)
}

func (s *script) channel() (channel, error) {
	if err := s.do(nil, "channel"); err != nil {
		return nil, err
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	ch := &scriptChannel{script: s, r: p[0], w: p[1]}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.channels++
	s.chans = append(s.chans, ch)
	return ch, nil
}

type scriptChannel struct {
	*script
	r, w  int
	queue []event
}

func (ch *scriptChannel) fd() int { return ch.r }

func (ch *scriptChannel) push(ev event) {
	ch.mu.Lock()
	ch.queue = append(ch.queue, ev)
	ch.mu.Unlock()
	_, _ = unix.Write(ch.w, []byte{1})
}

func (ch *scriptChannel) event() (event, error) {
	var b [1]byte
	if _, err := unix.Read(ch.r, b[:]); err != nil {
		return event{}, err
	}
	if err := ch.do(nil, "event"); err != nil {
		return event{}, err
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ev := ch.queue[0]
	ch.queue = ch.queue[1:]
	return ev, nil
}

func (ch *scriptChannel) newID() (identifier, error) {
	if err := ch.do(nil, "newID"); err != nil {
		return nil, err
	}
	return ch.identifier(), nil
}

func (ch *scriptChannel) identifier() *scriptID {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.ids++
	return &scriptID{ch}
}

func (ch *scriptChannel) close() {
	_ = unix.Close(ch.r)
	_ = unix.Close(ch.w)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.channels--
}

type scriptID struct{ ch *scriptChannel }

func (id *scriptID) do(name string) error { return id.ch.do(id.ch, name) }

func (id *scriptID) bind(netip.AddrPort) error { return id.do("bind") }
func (id *scriptID) resolveAddr(netip.AddrPort, netip.AddrPort, int) error {
	return id.do("resolveAddr")
}
func (id *scriptID) resolveRoute(int) error { return id.do("resolveRoute") }
func (id *scriptID) listen(int) error       { return id.do("listen") }
func (id *scriptID) establish() error       { return id.do("establish") }
func (id *scriptID) disconnect() error      { return id.do("disconnect") }

func (id *scriptID) connect(p *connParam) error { return id.with("connect", p) }
func (id *scriptID) accept(p *connParam) error  { return id.with("accept", p) }

func (id *scriptID) with(name string, p *connParam) error {
	id.ch.mu.Lock()
	id.ch.last = *p
	id.ch.mu.Unlock()
	return id.do(name)
}

func (id *scriptID) reject(data []byte) error {
	id.ch.mu.Lock()
	id.ch.rejected = data
	id.ch.mu.Unlock()
	return id.do("reject")
}

func (id *scriptID) migrate(to channel) error {
	err := id.do("migrate")
	if err == nil {
		id.ch = to.(*scriptChannel)
	}
	return err
}

func (id *scriptID) attributes() (ibvfd.ManagedAttr, error) {
	return id.ch.attr, id.do("attributes")
}

func (id *scriptID) addrs() (local, remote netip.AddrPort) {
	return netip.MustParseAddrPort("10.9.0.1:4000"), netip.MustParseAddrPort("10.9.0.2:7471")
}

func (id *scriptID) device() (device, error) { return id.ch.dev, id.do("device") }

func (id *scriptID) context(closed func()) (*ibvfd.Context, error) {
	return nil, id.do("context")
}

func (id *scriptID) destroy() error {
	if err := id.do("destroy"); err != nil {
		return err
	}
	id.ch.mu.Lock()
	defer id.ch.mu.Unlock()
	id.ch.ids--
	return nil
}

// scriptQP is a queue pair.
type scriptQP struct {
	err    error  // of ConnectManaged
	during func() // it, if not nil
	got    ibvfd.ManagedAttr
	errs   int
}

func (q *scriptQP) Num() uint32 { return 17 }

func (q *scriptQP) ConnectManaged(a ibvfd.ManagedAttr) error {
	q.got = a
	if q.during != nil {
		q.during()
	}
	return q.err
}

func (q *scriptQP) Err() error {
	q.errs++
	return nil
}
