// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// Caller is the connection of a caller that has a place. The handshake reads through its Read,
// which records the first byte, and the time for which the listener waits.
type Caller struct {
	net.Conn
	pending *Pending
	cancel  func(why error)
	done    atomic.Bool // connected: Read records nothing any more

	// The mutex of Pending guards these.
	source  *source
	present bool  // has a place
	why     error // why it lost the place
	phase   Phase
	then    Phase // the phase after the first byte
	spoke   bool
	began   time.Time     // the phase
	before  time.Duration // the listener's earlier waits in this phase
	waiting bool
	since   time.Time     // of the present wait
	lost    time.Duration // Pending's, then
	limit   *time.Timer
	gone    bool
}

// begin begins a phase.
func (c *Caller) begin(ph Phase, now time.Time) {
	c.phase, c.began, c.before, c.since, c.lost = ph, now, 0, now, c.pending.lost
	if c.limit != nil {
		c.limit.Stop()
	}
	c.limit = time.AfterFunc(ph.limit(), func() { c.expire(ph) })
}

// elapsed returns the time that the listener has waited for the caller in this phase.
func (c *Caller) elapsed(now time.Time) time.Duration {
	if c.waiting {
		return c.before + now.Sub(c.since)
	}
	return c.before
}

// waited returns elapsed without the time in which this process did not run. An eighth of elapsed
// counts in any case, so that a handshake ends on a machine that is always busy, too.
func (c *Caller) waited(now time.Time) time.Duration {
	all := c.elapsed(now)
	if !c.waiting {
		return all
	}
	return max(all/8, all-(c.pending.lost-c.lost))
}

// expire takes the place of a caller that is still in that phase.
func (c *Caller) expire(ph Phase) {
	p := c.pending
	p.mu.Lock()
	late := c.present && c.phase == ph
	why := fmt.Errorf("%w: %v within %v", ErrSlow, ph, ph.limit())
	if late {
		p.evict(c, why, time.Now())
	}
	p.mu.Unlock()
	if late {
		c.end(why)
	}
}

// end ends the handshake of a caller that has lost its place.
func (c *Caller) end(why error) {
	c.cancel(why)
	c.reset()
}

// reset closes a TCP connection so that the kernel keeps no state of it. The goroutine of the
// handshake closes connections of other kinds, which may take time.
func (c *Caller) reset() {
	if t, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
		_ = c.Conn.Close()
	}
}

// Read reads what the caller sends.
func (c *Caller) Read(b []byte) (int, error) {
	if c.done.Load() {
		return c.Conn.Read(b)
	}
	p := c.pending
	p.mu.Lock()
	if !c.waiting {
		c.waiting, c.since, c.lost = true, time.Now(), p.lost
	}
	p.mu.Unlock()
	n, err := c.Conn.Read(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	c.before, c.waiting = c.waited(now), false
	if n > 0 && !c.spoke {
		c.spoke = true
		if c.present {
			c.begin(c.then, now)
		}
	}
	return n, err
}

// Advance begins a phase; a caller that has sent nothing begins it with its first byte.
func (c *Caller) Advance(to Phase) {
	c.pending.mu.Lock()
	defer c.pending.mu.Unlock()
	switch {
	case !c.spoke:
		c.then = to
	case c.present:
		c.begin(to, time.Now())
	}
}

// Connected ends the handshake: from here on the caller keeps its connection. It returns an error
// if the caller has lost its place before.
func (c *Caller) Connected() error {
	p := c.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.present {
		if c.why == nil {
			return errors.New("connected twice")
		}
		return c.why
	}
	c.done.Store(true)
	p.remove(c)
	p.succeeded(c.source, time.Now())
	return nil
}

// Leave ends the handshake that Enter began: a caller that is not connected has failed. A second
// Leave does nothing.
func (c *Caller) Leave() {
	p := c.pending
	_ = c.giveUp()
	p.mu.Lock()
	gone := c.gone
	c.gone = true
	p.mu.Unlock()
	c.cancel(nil)
	if !gone {
		<-p.ending
	}
}

// giveUp takes the place of a caller that has failed. It returns the reason if the caller had
// lost the place before.
func (c *Caller) giveUp() error {
	p := c.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.present {
		p.remove(c)
		p.failed(c.source, time.Now())
	}
	return c.why
}
