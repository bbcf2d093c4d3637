// SPDX-License-Identifier: Apache-2.0

package memstream

import (
	"sync"
	"time"
)

// deadline is a time that can be changed while a goroutine waits for it.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	over  chan struct{} // closed when the time has come
}

// passed returns a channel that is closed when the present deadline passes. A later set may
// replace the channel; it then closes the old one.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.channel()
}

func (d *deadline) channel() chan struct{} {
	if d.over == nil {
		d.over = make(chan struct{})
	}
	return d.over
}

// isOver reports whether the deadline has passed.
func (d *deadline) isOver() bool {
	select {
	case <-d.passed():
		return true
	default:
		return false
	}
}

// set sets the deadline; the zero time is none. Then it calls changed.
func (d *deadline) set(t time.Time, changed func()) {
	d.mu.Lock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer = nil
	over := d.channel()
	select {
	case <-over:
		over = make(chan struct{})
		d.over = over
	default:
	}
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		close(over)
	default:
		var timer *time.Timer
		timer = time.AfterFunc(left, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.timer == timer { // no other deadline was set
				close(over)
			}
		})
		d.timer = timer
	}
	d.mu.Unlock()
	changed()
}
