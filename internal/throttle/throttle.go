// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"fmt"
	"sync"
	"time"
)

// Most is how many lines are printed in a second.
const Most = 10

// Lines counts lines. The zero value has counted none.
type Lines struct {
	Now func() time.Time // nil: time.Now

	mu     sync.Mutex
	second time.Time // when the second has begun
	told   int       // lines in it
	untold int       // lines since the last one that was printed
}

// Next reports whether the next line is printed, and what to add about those that were not.
func (l *Lines) Next() (more string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.Now != nil {
		now = l.Now()
	}
	if now.Sub(l.second) >= time.Second {
		l.second, l.told = now, 0
	}
	if l.told == Most {
		l.untold++
		return "", false
	}
	if l.untold > 0 {
		more = fmt.Sprintf(" (and %d others before)", l.untold)
	}
	l.told, l.untold = l.told+1, 0
	return more, true
}
