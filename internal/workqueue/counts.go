// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"errors"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/gpurdma/gpurdma/internal/operation"
)

// Kinds is the number of a Counts' entries. Each is at the index of its kind; works of the other
// kinds are not counted.
const Kinds = operation.CompareSwap + 1

// Buckets is the number of a KindCounts' buckets of latency.
const Buckets = 26

// Counts are what a connection has done, by kinds of operations: operations of this side.
type Counts [Kinds]KindCounts

// KindCounts are what a connection has done by operations of one kind.
type KindCounts struct {
	Failed  uint64        // operations that have failed, or were withdrawn, wholly or in part
	Repeats uint64        // times that an operation was begun again on another link
	Bytes   int64         // of those that were done
	Staged  int64         // bytes that were copied between staged memory and its source, for operations that were done or have failed
	Time    time.Duration // the sum of the times from posting to completion of those that were done
	Latency [Buckets]uint64
}

// Done returns the number of operations that were done: all in Latency. Its bucket i has those
// that took at most 2^i microseconds, and longer than the bucket before it; the last has all that
// took longer.
func (k *KindCounts) Done() (n uint64) {
	for _, x := range k.Latency {
		n += x
	}
	return n
}

func (k *KindCounts) add(x *KindCounts) {
	k.Failed += x.Failed
	k.Repeats += x.Repeats
	k.Bytes += x.Bytes
	k.Staged += x.Staged
	k.Time += x.Time
	for i, n := range x.Latency {
		k.Latency[i] += n
	}
}

// Add adds other counts.
func (c *Counts) Add(x *Counts) {
	for i := range c {
		c[i].add(&x[i])
	}
}

// Total returns the sum of all kinds.
func (c *Counts) Total() (sum KindCounts) {
	for i := range c {
		sum.add(&c[i])
	}
	return sum
}

// Sum is the Counts of the connections of a NIC, or of several NICs, and of the NICs themselves.
type Sum struct {
	Counts
	Conns  int   // connections that are open
	Pinned int64 // bytes of host memory that are pinned
	Copied int64 // bytes that were copied between staged memory and its source, for operations and otherwise
	Blocks
}

// Blocks are blocks of peers' writes whose bytes were compared with the peers' sums.
type Blocks struct {
	Checked, Corrupt uint64 // Corrupt are those that differed
}

// BlockCounter counts Blocks. Its methods may be called from several goroutines at once.
type BlockCounter struct{ checked, corrupt atomic.Uint64 }

// Count adds blocks.
func (c *BlockCounter) Count(b Blocks) {
	c.checked.Add(b.Checked)
	c.corrupt.Add(b.Corrupt)
}

// Blocks returns what was counted.
func (c *BlockCounter) Blocks() Blocks { return Blocks{c.checked.Load(), c.corrupt.Load()} }

// Add adds another sum.
func (s *Sum) Add(x *Sum) {
	s.Counts.Add(&x.Counts)
	s.Conns += x.Conns
	s.Pinned += x.Pinned
	s.Copied += x.Copied
	s.Checked += x.Checked
	s.Corrupt += x.Corrupt
}

// counters are a connection's Counts while it goes on. A reader takes no lock.
type counters [Kinds]struct {
	failed, repeats     atomic.Uint64
	bytes, staged, time atomic.Int64
	latency             [Buckets]atomic.Uint64
}

// ended counts an operation that has ended at that time.
func (c *counters) ended(o *Work, now int64) {
	k := &c[o.Kind]
	if n := o.Copied(); n > 0 {
		k.staged.Add(n)
	}
	switch {
	case errors.Is(o.err, ErrEvicted): // another rail counts it
		return
	case o.err != nil:
		if !o.part {
			k.failed.Add(1)
		}
		return
	case o.own:
		return
	}
	k.bytes.Add(o.Length)
	if !o.part {
		c.done(o.Kind, now-o.since)
	}
}

// done counts an operation that was done, and its time.
func (c *counters) done(kind operation.Kind, took int64) {
	k := &c[kind]
	k.time.Add(max(took, 0))
	k.latency[bucketOf(max(took, 0))].Add(1)
}

// Count counts an operation of which no work counts all: one of several parts, or one that was never
// posted. took is its time.
func (q *Queue) Count(kind operation.Kind, err error, took time.Duration) {
	if int(kind) >= len(q.counters) {
		return
	}
	if err != nil {
		q.counters[kind].failed.Add(1)
		return
	}
	q.counters.done(kind, int64(took))
}

// bucketOf returns the bucket of a time in nanoseconds, which is not below 0.
func bucketOf(took int64) int {
	return min(bits.Len64(uint64(max(took, 1)-1)/1000), Buckets-1)
}

// AddCounts adds what the connection has done so far to a sum. It takes no lock.
func (q *Queue) AddCounts(sum *Counts) {
	for i := range q.counters {
		k, x := &sum[i], &q.counters[i]
		k.Failed += x.failed.Load()
		k.Repeats += x.repeats.Load()
		k.Bytes += x.bytes.Load()
		k.Staged += x.staged.Load()
		k.Time += time.Duration(x.time.Load())
		for b := range x.latency {
			k.Latency[b] += x.latency[b].Load()
		}
	}
}

// AddTo adds the connection, and what it has done so far, to a sum. It takes no lock.
func (q *Queue) AddTo(sum *Sum) {
	q.AddCounts(&sum.Counts)
	if q.begun.Load() && !q.Over() {
		sum.Conns++
	}
}

// epoch is when the process began. The monotonic clock alone takes half the time of time.Now.
var epoch = time.Now()

// clock returns the time since epoch in nanoseconds.
func clock() int64 { return int64(time.Since(epoch)) }
