// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"errors"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// quickDevice is a device in memory whose operations move no bytes, complete at once, and
// allocate nothing.
type quickDevice struct{ *memnic.Device }

type quickQueue struct {
	rc.CompletionQueue
	mu   sync.Mutex
	wcs  []ibvfd.WC
	over bool // a link has failed: its completions are those of the network
}

type quickLink struct {
	rc.Link
	q *quickQueue
}

func (d quickDevice) Queue(depth int, event func(), broke func(error)) (rc.CompletionQueue, error) {
	q, err := d.Device.Queue(depth, event, broke)
	return &quickQueue{CompletionQueue: q, wcs: make([]ibvfd.WC, 0, depth)}, err
}

func (d quickDevice) Link(a rc.Attr) (rc.Link, error) {
	q := a.Queue.(*quickQueue)
	a.Queue = q.CompletionQueue
	l, err := d.Device.Link(a)
	return &quickLink{l, q}, err
}

func (l *quickLink) Post(_ int, wrs []ibvfd.SendWR) (int, error) {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	for i := range wrs {
		if wrs[i].Flags&ibvfd.SendSignaled != 0 {
			l.q.wcs = append(l.q.wcs, ibvfd.WC{ID: wrs[i].ID})
		}
	}
	return len(wrs), nil
}

func (l *quickLink) Fail() error {
	l.q.mu.Lock()
	l.q.over = true
	l.q.mu.Unlock()
	return l.Link.Fail()
}

func (q *quickQueue) Poll(wc []ibvfd.WC) (int, error) {
	q.mu.Lock()
	n := copy(wc, q.wcs)
	q.wcs = q.wcs[:copy(q.wcs, q.wcs[n:])]
	over := q.over
	q.mu.Unlock()
	if n > 0 || !over {
		return n, nil
	}
	return q.CompletionQueue.Poll(wc)
}

// Operations and their completions allocate nothing.
func TestPostingDoesNotAllocate(t *testing.T) {
	n := memnic.New(memnic.Manual())
	testPostingDoesNotAllocate(t, setting{open: func(t testing.TB, _ DomainOptions) *Domain {
		d := domainOf(memory.NewNIC(quickDevice{n.Device("mem0", memnic.Limits{})}, memory.NICOptions{}))
		closing(t, d)
		return d
	}})
}

func testPostingDoesNotAllocate(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a, 64), hostKind.make(t, w.b, 64)
	from, to := mine.All(), w.share(theirs.All(), allAccess).All()
	msg := MsgRMA{IOV: []IOV{mine.Part(0, 8), mine.Part(8, 56)}, RMAIOV: []RMAIOV{to}}
	list := make([]CQEntry, 16)
	ctx := limited(t)
	for name, post := range map[string]func() error{
		"Write":       func() error { return w.a.Write(from, w.ab, to, nil) },
		"Read":        func() error { return w.a.Read(from, w.ab, to, nil) },
		"no address":  func() error { return w.a.Write(from, AddrUnspec, to, nil) },
		"Writev":      func() error { return w.a.Writev(msg.IOV, w.ab, to, nil) },
		"Readv":       func() error { return w.a.Readv(msg.IOV, w.ab, to, nil) },
		"WriteMsg":    func() error { return w.a.WriteMsg(msg, Fence|TransmitComplete) },
		"FetchAtomic": func() error { return w.a.FetchAtomic(1, mine.Part(0, 8), w.ab, RMAIOV{to.Key, 0, 8}, Sum, nil) },
	} {
		allocs := testing.AllocsPerRun(100, func() {
			if err := post(); err != nil {
				t.Fatal(err)
			}
			if n, err := w.a.CQ().Sread(ctx, list); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := w.a.CQ().Read(list); !errors.Is(err, EAGAIN) {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("a look at an empty CQ: %v allocations", allocs)
	}
}

// The limit of pinned memory is ENOMEM for an operation, too, and not the limit of a length.
func TestInjectWithoutMemory(t *testing.T) {
	s := inMemory(t)
	d := s.open(t, DomainOptions{MaxPinned: 4096})
	e := must(d.Endpoint(EndpointOptions{}))(t)
	closing(t, e)
	p := must(e.Insert("127.0.0.1:1"))(t)
	if err := e.InjectWrite(make([]byte, 8), p, RMAIOV{}); Code(err) != ENOMEM {
		t.Errorf("%v: %v", Code(err), err)
	}
	if _, err := d.AllocHost(8192); Code(err) != ENOMEM {
		t.Errorf("%v: %v", Code(err), err)
	}
}

// The zero Key has no bytes, and cannot be encoded.
func TestZeroKey(t *testing.T) {
	k := new(Key)
	if k.Size() != 0 || k.Access() != 0 {
		t.Errorf("%d bytes, %v", k.Size(), k.Access())
	}
	if _, err := k.MarshalBinary(); Code(err) != EINVAL {
		t.Error(err)
	}
}
