// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"slices"
	"time"
)

// load is what a rail has under way, and how fast it is. The scheduler's mutex guards it.
type load struct {
	slices int
	bytes  int64
	rate   float64       // bytes a second while it has slices that are measured; 0 before that
	large  int           // slices under way that are measured: those of leastSlice bytes or more
	moved  int64         // bytes of these since the last sample
	busy   time.Duration // how long the rail had such slices since the last sample, until the time in since
	since  time.Time     // the rail has had such slices since then
	best   float64       // the highest rate
	low    int           // samples in a row below half of it
	slow   bool
	passed int64 // bytes that other rails got since this one had the last slice that was measured
	again  bool  // the rate is old: it is measured again
	tries  int   // how often it was measured again, and was slow
}

// sample is the least time over which a rate is measured.
const sample = 5 * time.Millisecond

// begin adds a slice.
func (l *load) begin(n int64) {
	l.slices++
	l.bytes += n
	if n >= leastSlice {
		l.passed = 0
		if l.large == 0 {
			l.since = time.Now()
		}
		l.large++
	}
}

// slowSamples is the number of samples in a row after which a rail is slow.
const slowSamples = 8

// end takes a slice away, and measures the rate. It reports whether the rail has become slow, or is
// not slow any more.
func (l *load) end(n int64, good bool) (changed bool) {
	l.slices--
	l.bytes -= n
	if n < leastSlice {
		return false
	}
	l.large--
	took := l.busy + time.Since(l.since)
	if l.large == 0 {
		l.busy = took
	}
	if !good {
		l.moved, l.busy, l.since = 0, 0, time.Now()
		return false
	}
	l.moved += n
	if took < sample {
		return false
	}
	now := float64(l.moved) / took.Seconds()
	if l.rate == 0 || l.again {
		l.rate, l.again = now, false
	}
	l.rate += (now - l.rate) / 4
	l.since, l.moved, l.busy = time.Now(), 0, 0
	if l.best = max(l.best, l.rate); l.rate < l.best/2 {
		l.low++
	} else {
		l.low = 0
	}
	was := l.slow
	l.slow = l.low >= slowSamples || l.slow && l.low > 0
	return l.slow != was
}

// Sizes of slices, in bytes.
const (
	leastSlice = 64 << 10
	mostSlice  = 4 << 20
	cutFrom    = 256 << 10 // an operation of this size is cut
	perRail    = 4         // slices of a large operation that each rail gets at least, if none is faster
	mostAtOnce = 8         // slices that a rail has at once
	mostNew    = 2         // of these, before it was measured
)

// sliceTime is how long a rail carries a slice, if that is not too short or too long.
const sliceTime = 20 * time.Millisecond

// even reports whether rails are about equally fast: each gets one slice of an operation then, if that is
// not too large.
func even(rails []*Rail) bool {
	top := fastest(rails)
	return top > 0 && !slices.ContainsFunc(rails, func(r *Rail) bool { return r.load.rate < top*3/4 })
}

// slice returns the size of a rail's slices of an operation that is cut into parts. A rail that was not
// measured, or is measured again, gets small ones. Slices end where the next one begins aligned, so that
// no NIC splits the packets of an aligned operation in two.
func (l *load) slice(size int64, parts int) int64 {
	const whole = 4 << 10 // that of the largest MTU
	if l.again {
		return min(size, leastSlice)
	}
	part := size/int64(parts) + whole
	n := min(part, int64(min(l.rate*sliceTime.Seconds(), mostSlice))) / whole * whole
	return min(size, max(leastSlice, n))
}

// takes reports whether a rail may get another slice of an operation.
func (l *load) takes() bool {
	if l.again {
		return l.large == 0
	}
	return l.slices < mostNew || l.rate > 0 && l.slices < mostAtOnce
}

// Pauses before a rail is measured again, in multiples of what that costs: the time that the rail needs for a
// slice, or that a sample takes.
const (
	firstTry = 8
	lastTry  = 64 // each pause is twice the one before, up to this
)

// pass counts n bytes that one of several rails gets. A rail that was slow when it was measured gets no
// slice of an operation that the others carry sooner, so that its rate would stay what it was. When they have
// carried bytes for much longer than a measurement takes, the rail is measured again. Slices of less than
// leastSlice do not count, since they are not measured.
func pass(rails []*Rail, to *Rail, n int64) {
	if n < leastSlice {
		return
	}
	top, sum := fastest(rails), 0.0
	for _, r := range rails {
		sum += r.load.rate
	}
	for _, r := range rails {
		l := &r.load
		if l.rate >= top/2 {
			l.tries = 0
		}
		if r == to || l.large > 0 || l.again || l.rate == 0 || l.rate >= top/2 {
			continue
		}
		l.passed += n
		pause := float64(min(firstTry<<min(l.tries, 8), lastTry)) * max(leastSlice/l.rate, sample.Seconds())
		if float64(l.passed) >= pause*(sum-l.rate) {
			l.again, l.tries, l.moved, l.busy = true, l.tries+1, 0, 0
		}
	}
}

// ends returns after how many seconds a rail has carried n more bytes. fastest is the highest rate of
// all rails: that of a rail which was not measured. One that is measured again counts as that for one slice.
func (l *load) ends(n int64, fastest float64) float64 {
	rate := l.rate
	if rate == 0 || l.again && l.large == 0 && n >= leastSlice {
		rate = max(fastest, 1)
	}
	return float64(l.bytes+n) / rate
}

// fastest returns the highest rate of rails.
func fastest(rails []*Rail) (rate float64) {
	for _, r := range rails {
		rate = max(rate, r.load.rate)
	}
	return rate
}

// best returns the rail that would carry n bytes first; of several the one that is measured again.
func best(rails []*Rail, n int64) *Rail {
	var found *Rail
	least, top := 0.0, fastest(rails)
	for _, r := range rails {
		if t := r.load.ends(n, top); found == nil || t < least || t == least && r.load.again {
			found, least = r, t
		}
	}
	return found
}

// next returns the rail for the next slice of an operation of size bytes, of which some are left, and
// the size of the slice. It returns nil if a rail that has all the slices that it may have would carry
// the rest sooner than another one.
func next(rails []*Rail, size, left int64) (found *Rail, n int64) {
	top, sum, bytes := fastest(rails), 0.0, left
	for _, r := range rails {
		sum += max(r.load.rate, top/float64(1+len(rails))) // a guess, for one that was not measured
		bytes += r.load.bytes
	}
	least, soonest, parts := 0.0, 0.0, len(rails)
	if !even(rails) {
		parts *= perRail
	}
	for _, r := range rails {
		some := min(left, r.load.slice(size, parts))
		t := r.load.ends(some, top)
		takes := r.load.takes()
		if (soonest == 0 || t < soonest) && (takes || !r.load.again) {
			soonest = t
		}
		if takes && (found == nil || t < least) {
			found, n, least = r, some, t
		}
	}
	if top > 0 && least > max(soonest, float64(bytes)/sum) {
		return nil, 0
	}
	return found, n
}
