// SPDX-License-Identifier: Apache-2.0

package operation

import "fmt"

// Full is ErrQueueFull with the limit that is reached. It is allocated with the object that it
// limits, so that a full queue costs no allocation.
type Full struct {
	Most   int
	Format string // of the text, with Most
}

// The texts of Full.
const (
	FullQueue    = "queue full: %d operations are under way, or their completions were not taken, which is the depth given to NewQueue: take completions by Poll or Wait, or make a deeper queue"
	FullDepth    = "queue full: %d operations of the connection are under way, which is Config.Depth: take completions, or connect with a larger Config.Depth"
	FullMessages = "queue full: %d operations of the connection are under way, which is Config.Depth, and the first of them that waits needs the peer's program to take messages or notifications, of which it has as many as its Config.Messages"
)

// Error names the limit, and what changes it.
func (f *Full) Error() string { return fmt.Sprintf(f.Format, f.Most) }

// Is makes it ErrQueueFull.
func (f *Full) Is(target error) bool { return target == ErrQueueFull }
