// SPDX-License-Identifier: Apache-2.0

package memstream

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// half is one direction of a stream: a buffer with one end that writes and one that reads.
type half struct {
	most int // bytes in the buffer

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something changes
	buf     []byte        // bytes that the reader may take
	late    []byte        // bytes that were written while the direction is silent
	silent  bool
	eof     bool // the writer writes no more
	lateEOF bool // the writer has ended while the direction is silent
	gone    bool // the reader has closed
	err     error
}

func newHalf(most int) *half { return &half{most: most, changed: make(chan struct{})} }

// change changes the half, and wakes those that wait for a change.
func (h *half) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	h.notify()
}

func (h *half) notify() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// read takes bytes. It waits for the first. end returns why the reader has ended.
func (h *half) read(p []byte, limit *deadline, end func() error) (int, error) {
	for {
		over := limit.passed()
		h.mu.Lock()
		changed := h.changed
		switch {
		case end() != nil:
			defer h.mu.Unlock()
			return 0, end()
		case limit.isOver():
			h.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case h.err != nil:
			defer h.mu.Unlock()
			return 0, h.err
		case len(p) == 0:
			h.mu.Unlock()
			return 0, nil
		case len(h.buf) > 0:
			n := copy(p, h.buf)
			h.buf = h.buf[n:]
			h.notify()
			h.mu.Unlock()
			return n, nil
		case h.eof:
			h.mu.Unlock()
			return 0, io.EOF
		}
		h.mu.Unlock()
		select {
		case <-changed:
		case <-over:
		}
	}
}

// write adds all bytes. It waits while the buffer is full. end returns why the writer has ended.
func (h *half) write(p []byte, limit *deadline, end func() error) (n int, err error) {
	for {
		over := limit.passed()
		h.mu.Lock()
		changed := h.changed
		switch {
		case end() != nil:
			defer h.mu.Unlock()
			return n, end()
		case limit.isOver():
			h.mu.Unlock()
			return n, os.ErrDeadlineExceeded
		case h.err != nil:
			defer h.mu.Unlock()
			return n, h.err
		case h.eof || h.lateEOF || h.gone && !h.silent:
			h.mu.Unlock()
			return n, unix.EPIPE
		}
		if room := min(h.most-len(h.buf)-len(h.late), len(p)); room > 0 || len(p) == 0 {
			if h.silent {
				h.late = append(h.late, p[:room]...)
			} else {
				h.buf = append(h.buf, p[:room]...)
			}
			n, p = n+room, p[room:]
			h.notify()
			changed = h.changed
		}
		h.mu.Unlock()
		if len(p) == 0 {
			return n, nil
		}
		select {
		case <-changed:
		case <-over:
		}
	}
}

// end is called when the writer writes no more.
func (h *half) end() {
	h.change(func() {
		if h.silent {
			h.lateEOF = true
		} else {
			h.eof = true
		}
	})
}

// leave is called when the reader reads no more.
func (h *half) leave() {
	h.change(func() { h.gone, h.buf = true, nil })
}

// reset ends both directions of a stream with ECONNRESET, at once: an end that has seen the reset
// sends nothing more. Bytes on their way are lost.
func reset(there, back *half) {
	there.mu.Lock()
	defer there.mu.Unlock()
	back.mu.Lock()
	defer back.mu.Unlock()
	for _, h := range []*half{there, back} {
		if h.err == nil {
			h.err, h.buf, h.late = unix.ECONNRESET, nil, nil
		}
		h.notify()
	}
}

// mute holds back bytes that are written, until a call with false.
func (h *half) mute(silent bool) {
	h.change(func() {
		if h.silent = silent; !silent {
			h.buf, h.late = append(h.buf, h.late...), nil
			h.eof, h.lateEOF = h.eof || h.lateEOF, false
		}
	})
}
