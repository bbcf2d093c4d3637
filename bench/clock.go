// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"
)

// counted says that the machine's clocks count instructions, one a nanosecond:
// `testbed run -count`.
var counted = os.Getenv("GPURDMA_COUNT") != ""

// countedSlice is the length of a turn then. It needs not be long, as nothing
// disturbs it.
const countedSlice = 10 * time.Millisecond

// unit is what the figures count.
func unit() string {
	if counted {
		return "instructions executed (1 ns each)"
	}
	return "time"
}

// clock reads the monotonic clock and no other, as the C program does.
func clock() time.Duration { return time.Since(clockStart) }

var clockStart = time.Now()
