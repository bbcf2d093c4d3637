// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"sync"
	"time"
)

// counterRate returns the kernel argument with the rate of an emulated kernel's time stamp
// counter, which is this machine's; nil if the rate is not known. Without it the kernel
// measures the rate against an emulated timer, while other processes have the processor, and
// may be wrong by a factor. Its clock then runs too fast by that factor until it ends: its
// time limits pass in a fraction of the time, and its stall detectors report threads that
// were not late (seen with 6.12 on a busy host: 1500 s in five minutes).
func counterRate() []string {
	if khz := tscKHz(); khz > 0 {
		return []string{fmt.Sprintf("tsc_early_khz=%d", khz)}
	}
	return nil
}

// tscKHz measures it once.
var tscKHz = sync.OnceValue(func() uint64 { return rateOf(rdtsc, 50*time.Millisecond) })

// rateOf is how often a counter counts in a millisecond, 0 if it does not.
func rateOf(counter func() uint64, span time.Duration) uint64 {
	began, from := reading(counter)
	time.Sleep(span)
	ended, to := reading(counter)
	if to <= from || ended <= began {
		return 0
	}
	return uint64(float64(to-from) / float64(ended-began) * float64(time.Millisecond))
}

// reading returns a counter's value and the time at which it had that value. It reads the
// counter 100 times and returns the reading that took the shortest time, because this thread
// may lose the processor at any time.
func reading(counter func() uint64) (at time.Duration, value uint64) {
	best := time.Duration(-1)
	for range 100 {
		before := time.Since(epoch)
		v := counter()
		after := time.Since(epoch)
		if best < 0 || after-before < best {
			best, at, value = after-before, before+(after-before)/2, v
		}
	}
	return at, value
}

var epoch = time.Now()
