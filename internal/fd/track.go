// SPDX-License-Identifier: Apache-2.0

package fd

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// tracking keeps the creation stack of every live FD while tests run. It is
// off in production: a stack trace per descriptor is not free.
var tracking struct {
	on atomic.Bool

	mu     sync.Mutex
	live   map[int]string
	leaked []string
}

// Track switches leak tracking on. Package testenv calls it before tests.
func Track() {
	tracking.mu.Lock()
	defer tracking.mu.Unlock()
	tracking.live = map[int]string{}
	tracking.leaked = nil
	tracking.on.Store(true)
}

// Leaks lists the descriptors that were opened since Track and are not closed, each
// with the stack that made it.
func Leaks() []string {
	tracking.mu.Lock()
	defer tracking.mu.Unlock()
	out := append([]string(nil), tracking.leaked...)
	for raw, stack := range tracking.live {
		out = append(out, fmt.Sprintf("fd %d is still open, made at:\n%s", raw, stack))
	}
	return out
}

func trackOpen(raw int) {
	if !tracking.on.Load() {
		return
	}
	buf := make([]byte, 8<<10)
	buf = buf[:runtime.Stack(buf, false)]
	tracking.mu.Lock()
	defer tracking.mu.Unlock()
	tracking.live[raw] = string(buf)
}

func trackClosed(raw int) {
	if !tracking.on.Load() {
		return
	}
	tracking.mu.Lock()
	defer tracking.mu.Unlock()
	delete(tracking.live, raw)
}

func trackLeaked(raw int) {
	if !tracking.on.Load() {
		return
	}
	tracking.mu.Lock()
	defer tracking.mu.Unlock()
	if stack, ok := tracking.live[raw]; ok {
		delete(tracking.live, raw)
		tracking.leaked = append(tracking.leaked,
			fmt.Sprintf("fd %d was dropped without Close, made at:\n%s", raw, stack))
	}
}
