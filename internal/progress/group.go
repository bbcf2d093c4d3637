// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"sync"

	"github.com/gpurdma/gpurdma/internal/operation"
)

// Group is several operations that are waited for together.
type Group struct {
	members []member
	done    chan struct{} // gets a value when all have ended

	mu    sync.Mutex
	left  int
	first int // index of the first that has failed
	err   error
}

// member is an operation of a group.
type member struct {
	group *Group
	index int
}

// NewGroup returns a group of n operations at most. Call Wait after the last Begin.
func NewGroup(n int) *Group {
	g := &Group{members: make([]member, n), done: make(chan struct{}, 1), left: 1, first: n}
	for i := range g.members {
		g.members[i] = member{g, i}
	}
	return g
}

// Begin adds operation i, and returns its context and its sink.
func (g *Group) Begin(i int) (any, operation.Sink) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left++
	return &g.members[i], groups{}
}

// End ends operation i without its sink: it was not posted.
func (g *Group) End(i int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil && i < g.first {
		g.first, g.err = i, err
	}
	if g.left--; g.left == 0 {
		g.done <- struct{}{}
	}
}

// Wait waits until all operations have ended, or ctx has: then it returns ctx's error. Otherwise it
// returns the error of the first operation that has failed, and its index.
func (g *Group) Wait(ctx context.Context, list []*Progress) (ended error, first int, err error) {
	g.End(len(g.members), nil)
	if ended := Await(ctx, list, g.done, nil); ended != nil {
		return ended, 0, nil
	}
	return nil, g.first, g.err
}

// groups is the sink of the operations of all groups.
type groups struct{}

// Complete ends a member.
func (groups) Complete(c operation.Completion) {
	m := c.Context.(*member)
	m.group.End(m.index, c.Err)
}
