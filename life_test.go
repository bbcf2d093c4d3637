// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/pciaddr"
	"golang.org/x/sys/unix"
)

// bytesSource is memory that NICs cannot register. As with a GPU's, the program may write it while
// a copy of an operation that it has given up goes on.
type bytesSource struct {
	mu sync.Mutex
	b  []byte
}

func newSource(size int) *bytesSource { return &bytesSource{b: make([]byte, size)} }

func (s *bytesSource) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return copy(p, s.b[off:]), nil
}

func (s *bytesSource) WriteAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return copy(s.b[off:], p), nil
}

func (s *bytesSource) Size() int64                  { return int64(len(s.b)) }
func (s *bytesSource) Hold() (func(), error)        { return func() {}, nil }
func (s *bytesSource) Segments() []gpualloc.Segment { return nil }
func (s *bytesSource) PCI() (pciaddr.Addr, bool)    { return pciaddr.Addr{}, false }

// twoNICs is a fabric of two NICs.
func twoNICs(t testing.TB, net *memnic.Network, names ...string) (*Fabric, []*memnic.Device) {
	var nics []*memory.NIC
	var devices []*memnic.Device
	for _, name := range names {
		d := net.Device(name, memnic.Limits{MaxSGE: 5, Inline: 64})
		devices = append(devices, d)
		nics = append(nics, memory.NewNIC(d, memory.NICOptions{}))
	}
	return must(fabricOf(nics...))(t), devices
}

// A connection that has ended leaves nothing in its fabric.
func TestEndedConnsAreForgotten(t *testing.T) {
	w := newWorld(t, Config{})
	for range 5 {
		a, b := w.connect(Config{})
		w.ok(a.Close())
		w.ok(b.Close())
	}
	for _, f := range []*Fabric{w.a, w.b} {
		if n := len(f.set.NICs[0].Endpoint.Peers()); n != 1 {
			t.Errorf("%v: %d peers in the table, with one connection", f, n)
		}
	}
}

// Listener.Close ends although calls of Accept take the connections that it is about to end.
func TestListenerCloseBesideAccept(t *testing.T) {
	w := newWorld(t, Config{})
	for i := range testenv.Count(200) {
		ln := must(w.b.Listen(fmt.Sprintf("b:%d", 100+i), Config{}))(t)
		for range 2 {
			must(w.a.Dial(limited(t), ln.Addr().String(), Config{}))(t)
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for {
					if _, err := ln.Accept(limited(t)); err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Errorf("Accept: %v", err)
						}
						return
					}
				}
			})
		}
		all.Go(func() { w.ok(ln.Close()) })
		all.Wait()
	}
}

// A fabric that is closed while it dials leaves nothing, and the dials say so.
func TestFabricCloseBesideDial(t *testing.T) {
	for i := range testenv.Count(200) {
		net := memnic.New(memnic.Exchanges(), memnic.TimeScale(0.05))
		a, _ := twoNICs(t, net, "nic-a")
		b, _ := twoNICs(t, net, "nic-b")
		must(b.Listen("b:1", Config{}))(t)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, err := a.Dial(limited(t), "b:1", Config{}); err != nil && !errors.Is(err, ErrClosed) {
					t.Errorf("Dial: %v", err)
				}
			})
		}
		time.Sleep(time.Duration(i%100) * 20 * time.Microsecond)
		for _, f := range []*Fabric{a, b} {
			if err := f.Close(); err != nil {
				t.Errorf("%v: %v", f, err)
			}
		}
		all.Wait()
		if n := net.Open(); n != 0 {
			t.Fatalf("round %d: %d registrations, links and queues are left", i, n)
		}
	}
}

// Host memory has the ordering that it was allocated with.
func TestHostOrdering(t *testing.T) {
	w := newWorld(t, Config{})
	mine := w.host(w.a, 8)
	for i, opts := range [][]BufferOption{nil, {StrictOrdering()}} {
		m := must(w.b.Alloc(limited(t), "host", 8, opts...))(t)
		w.ok(w.cb.Export(fmt.Sprint("flag ", i), m.All(), ReadWrite))
		remote := must(w.ca.Import(limited(t), fmt.Sprint("flag ", i)))(t)
		var relaxed []bool
		w.net.OnPlace(func(p memnic.Placement) time.Duration {
			relaxed = append(relaxed, p.Relaxed)
			return 0
		})
		w.ok(w.ca.Write(limited(t), remote, mine.All(), Delivered()))
		w.net.OnPlace(nil)
		if len(relaxed) == 0 || relaxed[0] != (i == 0) {
			t.Errorf("with %d options: relaxed %v", len(opts), relaxed)
		}
	}
	if _, err := w.b.Alloc(limited(t), "host", 8, StagedOnly()); err == nil {
		t.Error("host memory was staged")
	}
}

// Free ends a buffer with its memory, or does nothing, whatever goes on beside it.
func TestFreeBesideOperations(t *testing.T) {
	w := newWorld(t, Config{})
	_, remote := w.lend("memory", 8)
	before := w.a.Stats().Pinned
	for i := range testenv.Count(5000) {
		m := w.host(w.a, 8)
		started := make(chan *Transfer, 1)
		go func() {
			x, _ := w.ca.Start(limited(t), Op{Kind: OpWrite, Local: m.All(), Remote: remote})
			started <- x
		}()
		err := m.Free()
		if n := w.a.Stats().Pinned; err == nil && n > before {
			t.Fatalf("round %d: %d bytes are pinned after Free", i, n-before)
		}
		if x := <-started; x != nil {
			<-x.Released()
		}
		for err != nil {
			if !errors.Is(err, failure.ErrInUse) {
				t.Fatal(err)
			}
			err = m.Free()
		}
	}
}

// A staged buffer of two NICs, which share its staging buffer, can be freed.
func TestFreeStagedOfTwoNICs(t *testing.T) {
	net := memnic.New(memnic.Exchanges(), memnic.TimeScale(0.05))
	f, _ := twoNICs(t, net, "x", "y")
	b := must(f.Register(limited(t), newSource(64)))(t)
	part := must(b.Slice(0, 8))(t)
	if err := b.Free(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("Free beside a slice: %v", err)
	}
	must(part.ReadAt(make([]byte, 8), 0))(t)
	if err := errors.Join(part.Close(), b.Free()); err != nil {
		t.Error(err)
	}
	if n := f.Stats().Pinned; n != 0 {
		t.Errorf("%d bytes are pinned", n)
	}
	if err := f.Close(); err != nil || net.Open() != 0 {
		t.Errorf("%v; %d are left", err, net.Open())
	}
}

// Close posts nothing of what the NIC does not have.
func TestClosePostsNothing(t *testing.T) {
	w, theirs, remote := waiting(t)
	var list []*Transfer
	for i := range int64(4) {
		list = append(list, must(w.ca.Start(limited(t), Op{Kind: OpWrite, Inline: []byte{1}, Remote: remote.Range(i, 1), Notify: i == 0}))(t))
	}
	w.ok(w.ca.Close())
	for i, x := range list {
		<-x.Released()
		if !errors.Is(x.Err(), ErrClosed) {
			t.Errorf("operation %d: %v", i, x.Err())
		}
	}
	if got := w.get(theirs, 4); !bytes.Equal(got, make([]byte, 4)) {
		t.Errorf("landed: %v", got)
	}
}

// A queue whose connection is full of other operations waits until it has room.
func TestQueueWaitsForRoom(t *testing.T) {
	w := newWorld(t, Config{Depth: 1, Messages: 1})
	w.ok(w.ca.Send(limited(t), []byte("the only credit")))
	x := must(w.ca.Start(limited(t), Op{Kind: OpSend, Inline: []byte("a")}))(t)
	q := w.a.NewQueue(4)
	ops := []Op{{Kind: OpSend, Inline: []byte("hello"), Tag: 7}}
	if n, err := q.Post(w.ca, ops); n != 0 || !errors.Is(err, ErrQueueFull) {
		t.Fatalf("%d, %v", n, err)
	}
	done := make([]Completion, 4)
	soon, cancel := context.WithTimeout(limited(t), 10*time.Millisecond)
	defer cancel()
	if n, err := q.Wait(soon, done); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without room: %d, %v", n, err)
	}
	go func() {
		for range 3 {
			_, _ = w.cb.Receive(limited(t))
		}
	}()
	if n, err := q.Wait(limited(t), done); n != 0 || err != nil {
		t.Errorf("with room: %d, %v", n, err)
	}
	<-x.Done()
	must(q.Post(w.ca, ops))(t)
	if n, err := q.Wait(limited(t), done); n != 1 || err != nil || done[0].Tag != 7 || done[0].Len != 5 || done[0].Err != nil {
		t.Errorf("the message: %d, %v, %+v", n, err, done[0])
	}
	if s := w.ca.Stats(); s.Done != 3 || s.Bytes != int64(len("the only credit")+1+5) {
		t.Errorf("%+v", s)
	}
}

// The error of a connection is there as soon as an operation has failed because of its end.
func TestErrAfterAFailure(t *testing.T) {
	w := newWorld(t, Config{})
	mine := w.host(w.a, 8)
	for i := range testenv.Count(50) {
		a, b := w.connect(Config{})
		m := w.host(w.b, 8)
		w.ok(b.Export("m", m.All(), ReadWrite))
		remote := must(a.Import(limited(t), "m"))(t)
		w.ok(b.Unexport("m"))
		if err := a.Write(limited(t), remote, mine.All()); err == nil {
			t.Fatal("a write to memory that was withdrawn")
		}
		if a.Err() == nil {
			t.Fatalf("round %d: the connection has no error", i)
		}
		_ = a.Close()
		_ = b.Close()
		w.ok(m.Close())
	}
}

// The error of a connection is there as soon as an operation has been refused because of its end.
func TestErrAfterARefusal(t *testing.T) {
	w := newWorld(t, Config{})
	mine := w.host(w.a, 8)
	m := w.host(w.b, 8)
	for i := range 4 {
		a, b := w.connect(Config{})
		w.ok(b.Export("m", m.All(), ReadWrite))
		remote := must(a.Import(limited(t), "m"))(t)
		var ending sync.WaitGroup
		ending.Go(func() { _ = b.Close() })
		for {
			_, err := a.Start(limited(t), Op{Kind: OpWrite, Local: mine.All(), Remote: remote})
			if err == nil {
				continue
			}
			if a.Err() == nil {
				t.Fatalf("round %d: refused, and the connection has no error: %v", i, err)
			}
			break
		}
		ending.Wait()
		_ = a.Close()
	}
}

// An operation behind one that has failed has an error of the same kinds as the connection's.
func TestErrorsBehindAFailure(t *testing.T) {
	w := newWorld(t, Config{PeerTimeout: testenv.Limit(time.Second)})
	mine := w.host(w.a, 8)
	_, remote := w.lend("m", 8)
	w.net.Cut(w.da, w.db)
	type started struct {
		x   *Transfer
		err error // of Start, if the first has failed already
	}
	var list []started
	for range 3 {
		x, err := w.ca.Start(limited(t), Op{Kind: OpWrite, Local: mine.All(), Remote: remote})
		list = append(list, started{x, err})
	}
	w.ok(list[0].err)
	for i, s := range list {
		err := s.err
		if err == nil {
			<-s.x.Done()
			err = s.x.Err()
		}
		if !errors.Is(err, ErrPeerGone) || strings.Count(err.Error(), "not connected") > 1 {
			t.Errorf("operation %d: %v", i, err)
		}
	}
	w.net.Mend(w.da, w.db)
}

// A queue waits for room on any of the connections that were full.
func TestQueueWaitsForAnyRoom(t *testing.T) {
	w := newWorld(t, Config{Depth: 1, Messages: 1})
	a2, b2 := w.connect(Config{Depth: 1, Messages: 1})
	q := w.a.NewQueue(4)
	for _, c := range []*Conn{w.ca, a2} {
		w.ok(c.Send(limited(t), []byte("the only credit")))
		must(c.Start(limited(t), Op{Kind: OpSend, Inline: []byte("a")}))(t)
		if _, err := q.Post(c, []Op{{Kind: OpSend, Inline: []byte("b")}}); !errors.Is(err, ErrQueueFull) {
			t.Fatal(err)
		}
	}
	go func() {
		time.Sleep(time.Millisecond)
		_, _ = w.cb.Receive(limited(t))
	}()
	if n, err := q.Wait(limited(t), make([]Completion, 4)); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for range 2 {
		_, _ = b2.Receive(limited(t))
	}
}

// An Export beside an Unexport of the same name is refused, or is what the peer imports.
func TestExportBesideUnexport(t *testing.T) {
	w := newWorld(t, Config{})
	m := w.host(w.b, 8)
	for i := range testenv.Count(100) {
		name := fmt.Sprint(i)
		w.ok(w.cb.Export(name, m.All(), ReadWrite))
		ended := make(chan error)
		go func() { ended <- w.cb.Unexport(name) }()
		var err error
		for range 50 {
			if err = w.cb.Export(name, m.All(), ReadOnly); err == nil {
				break
			}
		}
		w.ok(<-ended)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			t.Fatal(err)
		}
		if err == nil {
			must(w.ca.Import(limited(t), name))(t)
		}
	}
}

// Options that contradict each other, and settings that make no sense, are refused.
func TestContradictions(t *testing.T) {
	w := newWorld(t, Config{})
	if _, err := w.a.Register(limited(t), newSource(8), DirectOnly(), StagedOnly()); err == nil {
		t.Error("DirectOnly and StagedOnly")
	}
	w.a.alloc = func(context.Context, string, int64) (any, error) {
		t.Error("Alloc allocates before it reads its options")
		return nil, ErrRange
	}
	if _, err := w.a.Alloc(limited(t), "cuda:0", 8, DirectOnly(), StagedOnly()); !errors.Is(err, unix.EINVAL) {
		t.Errorf("DirectOnly and StagedOnly: %v", err)
	}
	w.a.SetMaxPinned(1 << 20)
	if _, err := w.a.Alloc(limited(t), "host", 1<<40); !errors.Is(err, ErrLimit) {
		t.Errorf("more than may be pinned: %v", err)
	}
	for what, cfg := range map[string]Config{
		"PeerTimeout": {PeerTimeout: -1}, "ConnectTimeout": {ConnectTimeout: 1}, "ServiceLevel": {ServiceLevel: 16},
	} {
		if _, err := w.a.Dial(limited(t), "b:1", cfg); !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, slow := range []string{"b:2", "b:3"} {
		cfg := Config{Admit: func(ctx context.Context, _ PeerInfo) error { <-ctx.Done(); return ctx.Err() }}
		_ = must(w.b.Listen(slow, cfg))(t)
		if _, err := w.a.Dial(limited(t), slow, Config{ConnectTimeout: time.Millisecond}); err == nil || !strings.Contains(err.Error(), "ConnectTimeout") {
			t.Errorf("a connection without time: %v", err)
		}
	}
}
