// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"slices"
	"sync"
)

// strangers is how many callers of a listener may be silent about who they are.
const strangers = 128

// lobby is where they wait. When it is full, who has been there longest has to
// go: those who say nothing keep nobody out.
type lobby struct {
	mu   sync.Mutex
	here []*stranger // in the order in which they came
}

type stranger struct{ goAway context.CancelFunc }

func (l *lobby) enter(goAway context.CancelFunc) *stranger {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.here) == strangers {
		l.here[0].goAway()
		l.here = slices.Delete(l.here, 0, 1)
	}
	s := &stranger{goAway}
	l.here = append(l.here, s)
	return s
}

// leave does nothing for who has left.
func (l *lobby) leave(s *stranger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.here, s); i >= 0 {
		l.here = slices.Delete(l.here, i, i+1)
	}
}
