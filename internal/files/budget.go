// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"sync/atomic"
)

// ErrRepeats is the error after more accesses to a machine's files than a look at so many files needs: links make a few
// files appear as many.
var ErrRepeats = errors.New("too many accesses for so many files: links lead to the same files again and again")

// How many accesses a machine is worth: some, and some for each of its files. Those of the corpus need up to 14 for each.
const (
	accesses       = 100_000
	accessesOfFile = 24
)

// budget counts the accesses to a machine's files in one look.
type budget struct{ asked, files atomic.Int64 }

// take counts an access.
func (b *budget) take() error {
	if b.asked.Add(1) > accesses+accessesOfFile*b.files.Load() {
		return ErrRepeats
	}
	return nil
}
