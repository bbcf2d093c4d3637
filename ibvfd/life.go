// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/failure"
)

// kind is what can be made from another object and keeps it from closing.
type kind int

const (
	kindPD kind = iota
	kindCQ
	kindQP
	kindMR
	kindSRQ
	kindAH
	kindMW
	kindBuf
	kinds
)

var kindNames = [kinds]string{"PD", "CQ", "QP", "MR", "SRQ", "AH", "MW", "host buffer"}

// life is an object's state: open or closed, and what runs on it. The zero
// value is open.
type life struct {
	mu     sync.RWMutex // read-held while an operation runs
	closed bool
}

// enter begins an operation: the object stays open until leave. On a closed
// object it answers os.ErrClosed, and leave must not be called.
func (l *life) enter() error {
	l.mu.RLock()
	if l.closed {
		l.mu.RUnlock()
		return os.ErrClosed
	}
	return nil
}

func (l *life) leave() { l.mu.RUnlock() }

// end runs destroy once, when nothing runs on the object. If destroy fails the
// object stays open.
func (l *life) end(destroy func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	err := destroy()
	l.closed = err == nil
	return err
}

// parent is the life of an object from which others are made.
type parent struct {
	life
	closing atomic.Bool // set before the last look at users
	users   [kinds]atomic.Int32
}

// hold counts an object made from this one; the caller is between enter and
// leave. drop uncounts it.
func (p *parent) hold(k kind) { p.users[k].Add(1) }
func (p *parent) drop(k kind) { p.users[k].Add(-1) }

// join is hold without enter and leave, for a hot path: an object that is counted first
// and then sees no close under way is seen by every later close. It answers
// os.ErrClosed on a closed object.
func (p *parent) join(k kind) error {
	p.users[k].Add(1)
	if !p.closing.Load() {
		return nil
	}
	// A close that is under way may fail yet.
	p.drop(k)
	if err := p.enter(); err != nil {
		return err
	}
	p.hold(k)
	p.leave()
	return nil
}

// close runs destroy once, when nothing runs on the object and nothing made
// from it is left. If destroy fails the object stays open.
func (p *parent) close(op, device string, destroy func() error) error {
	// An object in use is refused without waiting for operations to end: they
	// may take long, and would make others wait in turn.
	if err := p.inUse(op, device); err != nil {
		return err
	}
	return p.end(func() error {
		p.closing.Store(true)
		err := p.inUse(op, device)
		if err == nil {
			err = destroy()
		}
		p.closing.Store(err == nil)
		return err
	})
}

// inUse is ErrInUse with what is left of what was made from the object.
func (p *parent) inUse(op, device string) error {
	var left []string
	for k := range p.users {
		if n := p.users[k].Load(); n > 0 {
			left = append(left, fmt.Sprintf("%d %s(s)", n, kindNames[k]))
		}
	}
	if left == nil {
		return nil
	}
	e := failed(op, device, failure.ErrInUse)
	e.Detail = strings.Join(left, " and ") + " not closed"
	e.Remedy = "close them first"
	return e
}
