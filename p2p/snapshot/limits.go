// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"

	"github.com/gpurdma/gpurdma/internal/files"
)

// Limits of a snapshot. No machine reaches them.
const (
	entryLimit  = 1_000_000 // files, links and directories, those that lead to others included
	totalLimit  = 192 << 20 // memory that they take
	streamLimit = 2 << 30   // of the archive when it is unpacked: tar needs a KiB for each small file
	fileLimit   = 16 << 20  // of one file
	NameLimit   = 1024      // bytes of a name
	depthLimit  = 32
	endLimit    = 1 << 20 // bytes behind the last file
)

var (
	errLarge = fmt.Errorf("%w: its files are larger than %d MiB", Err, totalLimit>>20)
	errMany  = fmt.Errorf("%w: it has more than %d files and directories", Err, entryLimit)
	errEnd   = fmt.Errorf("%w: there is more behind its end", Err)
)

// Fits returns an error, in which errors.Is finds Err, for a tree that is larger than a snapshot may be.
func Fits(t *files.Tree) error { return fits(t, entryLimit) }

func fits(t *files.Tree, most int) error {
	switch {
	case t.Len() > most:
		return errMany
	case t.Bytes() > totalLimit:
		return errLarge
	}
	return nil
}
