// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// pipe is a script's event descriptor: an event that is put in makes it readable.
type pipe struct {
	r, w int
	mu   sync.Mutex
	raw  []libibverbs.Event
}

func newPipe() (*pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	return &pipe{r: fds[0], w: fds[1]}, nil
}

func (p *pipe) put(e libibverbs.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raw = append(p.raw, e)
	_, err := unix.Write(p.w, []byte{0})
	return err
}

func (p *pipe) take() (libibverbs.Event, error) {
	var b [1]byte
	if _, err := unix.Read(p.r, b[:]); err != nil {
		return libibverbs.Event{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.raw[0]
	p.raw = p.raw[1:]
	return e, nil
}

func (p *pipe) close() {
	_ = unix.Close(p.r)
	_ = unix.Close(p.w)
}

// withEvents gives the script asynchronous events.
func (s *script) withEvents(t *testing.T) *pipe {
	t.Helper()
	p, err := newPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	s.async = p
	return p
}

func (c *scriptContext) EventFD() (int, error) {
	if c.async == nil {
		return -1, unix.EBADF
	}
	return c.async.r, c.failing("eventFD")
}

func (c *scriptContext) Event(show func(libibverbs.Event)) error {
	if err := c.failing("event"); err != nil {
		return err
	}
	e, err := c.async.take()
	if err != nil {
		return err
	}
	show(e)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked++
	return nil
}

// scriptCQ has what a test puts in, and raises an event for it when it is
// armed, as hardware does.
type scriptCQ struct {
	*script
	id      uintptr
	channel *pipe // nil without events

	mu          sync.Mutex
	armed       notify
	arms        int // how often it was armed
	taken, done int // events, and those that were acknowledged
	beforeArm   func()
	add         func(n int) // completions
	free        func()
}

func newScriptCQ(s *script, events bool) (*scriptCQ, error) {
	q := &scriptCQ{script: s, id: s.identify(), free: func() {}}
	if events {
		var err error
		if q.channel, err = newPipe(); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func (q *scriptCQ) Identity() uintptr { return q.id }
func (q *scriptCQ) ChannelFD() int    { return q.channel.r }

func (q *scriptCQ) Arm(solicited bool) error {
	if err := q.failing("arm"); err != nil {
		return err
	}
	if q.beforeArm != nil {
		q.beforeArm()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arms++
	q.armed = notifyAny
	if solicited {
		q.armed = notifySolicited
	}
	return nil
}

// state is for what it is armed, and how often it was.
func (q *scriptCQ) State() (armed notify, arms int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.armed, q.arms
}

// raise is what the NIC does with a completion that has just been added.
func (q *scriptCQ) raise(solicited bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.armed == notifyAny || solicited && q.armed == notifySolicited {
		q.armed = notifyNone
		return q.channel.put(libibverbs.Event{})
	}
	return nil
}

func (q *scriptCQ) Event() error {
	if err := q.failing("cq event"); err != nil {
		return err
	}
	_, err := q.channel.take()
	if err == nil {
		q.mu.Lock()
		q.taken++
		q.mu.Unlock()
	}
	return err
}

func (q *scriptCQ) Ack(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.done += n
}

func (q *scriptCQ) Destroy() error {
	if err := q.gone("destroyCQ", "CQ"); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken != q.done {
		panic("ibv_destroy_cq would wait for ever: events not acknowledged")
	}
	if q.channel != nil {
		q.channel.close()
		q.free()
	}
	return nil
}

func (p *scriptPD) CreateSRQ(*libibverbs.SRQInit) (libibverbs.SRQ, error) {
	if err := p.made("createSRQ", "SRQ"); err != nil {
		return nil, err
	}
	return &scriptSRQ{script: p.script, id: p.identify()}, nil
}

type scriptSRQ struct {
	*script
	id    uintptr
	limit int
}

func (q *scriptSRQ) Identity() uintptr { return q.id }
func (q *scriptSRQ) Resize(int) error  { return q.failing("resizeSRQ") }
func (q *scriptSRQ) Destroy() error    { return q.gone("destroySRQ", "SRQ") }

func (q *scriptSRQ) SetLimit(n int) error {
	if err := q.failing("modifySRQ"); err != nil {
		return err
	}
	q.limit = n
	return nil
}

func (q *scriptSRQ) Query() (maxWR, limit int, err error) {
	return 64, q.limit, q.failing("querySRQ")
}

func (p *scriptPD) CreateAH(path *libibverbs.Path) (libibverbs.AH, error) {
	if err := p.made("createAH", "AH"); err != nil {
		return nil, err
	}
	return &scriptAH{p.script, p.identify(), *path}, nil
}

func (p *scriptPD) ReplyAH(_ *libibverbs.WC, _ []byte, port int) (libibverbs.AH, error) {
	return p.CreateAH(&libibverbs.Path{Port: port})
}

type scriptAH struct {
	*script
	id   uintptr
	path libibverbs.Path
}

func (h *scriptAH) Identity() uintptr { return h.id }
func (h *scriptAH) Destroy() error    { return h.gone("destroyAH", "AH") }

func (p *scriptPD) AllocMW(int) (libibverbs.MW, error) {
	if err := p.made("allocMW", "MW"); err != nil {
		return nil, err
	}
	return &scriptMW{script: p.script, key: 0x1200}, nil
}

type scriptMW struct {
	*script
	key uint32
}

func (w *scriptMW) RKey() uint32   { return w.key }
func (w *scriptMW) Dealloc() error { return w.gone("deallocMW", "MW") }
