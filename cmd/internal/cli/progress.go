// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Progress redraws one line on a terminal. On anything else it is silent, so
// that logs and pipes stay clean.
type Progress struct {
	mu    sync.Mutex
	out   io.Writer
	every time.Duration
	last  time.Time
	drawn bool
}

// NewProgress draws on f if that is a terminal.
func NewProgress(f *os.File) *Progress {
	p := &Progress{every: 100 * time.Millisecond}
	if term.IsTerminal(int(f.Fd())) {
		p.out = f
	}
	return p
}

// Draw shows how far the work called what has come, unless it drew a moment ago.
func (p *Progress) Draw(what string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.out == nil || total <= 0 || now.Sub(p.last) < p.every {
		return
	}
	p.last, p.drawn = now, true
	fmt.Fprintf(p.out, "\r\x1b[K%s: %d%%", what, done*100/total)
}

// Clear removes the line, before anything else is printed.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.drawn = false
	}
}
