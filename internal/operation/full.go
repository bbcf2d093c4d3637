// SPDX-License-Identifier: Apache-2.0

package operation

import "fmt"

// Full is ErrQueueFull with the limit that is reached. It is allocated with the object that it
// limits, so that a full queue costs no allocation.
type Full struct {
	Most   int
	Format string // of the text, with Most
}

// Error names the limit, and what changes it.
func (f *Full) Error() string { return fmt.Sprintf(f.Format, f.Most) }

// Is makes it ErrQueueFull.
func (f *Full) Is(target error) bool { return target == ErrQueueFull }
