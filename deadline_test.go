// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// waiting is a world in which what follows on w.ca waits for a credit.
func waiting(t *testing.T) (w *world, theirs *Buffer, remote Remote) {
	w = newWorld(t, Config{Messages: 1})
	theirs, remote = w.lend("memory", 8)
	w.ok(w.ca.Send(limited(t), []byte("the only credit")))
	return w, theirs, remote
}

// Operations of a batch that the NIC does not have at the deadline do not land.
func TestBatchDeadline(t *testing.T) {
	w, theirs, remote := waiting(t)
	b := w.ca.Batch()
	for i := range int64(4) {
		b.Add(Op{Kind: OpWrite, Inline: []byte{1}, Remote: remote.Range(i, 1), Notify: i == 0})
	}
	ctx, cancel := context.WithTimeout(limited(t), 20*time.Millisecond)
	defer cancel()
	if err := b.Do(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Do: %v", err)
	}
	w.ok(w.ca.Close())
	if got := w.get(theirs, 4); !bytes.Equal(got, make([]byte, 4)) {
		t.Errorf("landed after the deadline: %v", got)
	}
}

// lapsed is a context whose deadline has passed, and whose timer has not noticed.
type lapsed struct {
	context.Context
	deadline time.Time
}

func (l lapsed) Deadline() (time.Time, bool) { return l.deadline, true }

// An operation does not begin after its deadline because those before it have ended by it.
func TestDeadlineOfFollowers(t *testing.T) {
	w, theirs, remote := waiting(t)
	ctx := lapsed{limited(t), time.Now()}
	var list []*Transfer
	for i := range int64(4) {
		list = append(list, must(w.ca.Start(ctx, Op{Kind: OpWrite, Inline: []byte{1}, Remote: remote.Range(i, 1), Notify: i == 0}))(t))
	}
	for _, x := range list {
		if <-x.Done(); !errors.Is(x.Err(), context.DeadlineExceeded) {
			t.Error(x.Err())
		}
	}
	if got := w.get(theirs, 4); !bytes.Equal(got, make([]byte, 4)) {
		t.Errorf("landed after the deadline: %v", got)
	}
}

// Of blocking calls with one deadline, none lets the NIC have the next one when it ends.
func TestDeadlineOfMany(t *testing.T) {
	w, theirs, remote := waiting(t)
	compared := 0
	for round := 0; compared < testenv.Count(20); round++ {
		const early = 15 * time.Millisecond // work requests that are posted by then have landed at the deadline
		ctx, cancel := context.WithTimeout(limited(t), 2*early)
		var all, posted sync.WaitGroup
		for i := range int64(8) {
			posted.Add(1)
			all.Go(func() {
				x, err := w.ca.Start(ctx, Op{Kind: OpWrite, Inline: []byte{1}, Remote: remote.Range(i, 1), Notify: i == 0, Fence: i == 1})
				posted.Done()
				if err == nil {
					<-x.Released()
					err = x.Err()
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("operation %d: %v", i, err)
				}
			})
		}
		posted.Wait()
		end, _ := ctx.Deadline()
		inTime := time.Until(end) > early // otherwise the machine is too busy to tell
		<-ctx.Done()
		before := w.get(theirs, 8)
		all.Wait()
		if after := w.get(theirs, 8); inTime && !bytes.Equal(before, after) {
			t.Fatalf("landed after the deadline: %v before, %v after", before, after)
		}
		cancel()
		w.put(theirs, make([]byte, 8))
		if inTime {
			compared++
		} else if round > 1000 {
			t.Fatal("the machine is too busy to post eight operations in time")
		}
	}
}
