// SPDX-License-Identifier: Apache-2.0

package main

import "runtime/debug"

// gcPercent lets the heap grow to two and a half times what is in use before the garbage collector runs.
// With more, a machine of 60,000 devices needs more than 64 MiB, depending on when the collector ends.
const gcPercent = 150

// memoryLimit is where the collector runs more often: a machine of 100,000 functions needs less.
const memoryLimit = 160 << 20

// tune sets how much memory the program takes before it looks for what is not in use any more.
func tune() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
}
