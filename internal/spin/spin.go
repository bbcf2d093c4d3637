// SPDX-License-Identifier: Apache-2.0

package spin

import (
	"runtime"
	"time"
)

// limit is how long to look for what comes at once: several round trips of a
// NIC, and less than what a sleep that is not needed would cost a caller in a
// loop.
const limit = 200 * time.Microsecond

// Wait is one busy wait. The zero value has not begun.
type Wait struct {
	looks int
	began time.Time
}

// Over is called after each look that found nothing. It lets others run, a
// kernel thread of a software NIC among them, and reports whether it is time to
// sleep; looks that follow a sleep are few.
func (w *Wait) Over() bool {
	w.looks++
	switch {
	case w.looks == 1:
		w.began = time.Now()
	case w.looks%16 == 0 && time.Since(w.began) > limit: // reading the clock costs more than a look
		return true
	}
	runtime.Gosched()
	return false
}
