// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// refusal says why a file is not read as a snapshot. Each is Err as well.
type refusal string

func (n refusal) Error() string { return string(n) }

// Is is for errors.Is.
func (refusal) Is(target error) bool { return target == error(Err) }

const (
	// Err means that a file is no snapshot, or one that is hostile, damaged or cut off. errors.Is finds it in the
	// errors of Read.
	Err = refusal("not an archive that `p2pcheck snapshot` wrote")

	errCut     = refusal("cut off: its end is missing")
	errDamaged = refusal("damaged")
)

// refused distinguishes a snapshot that was cut off or damaged from a file that never was one: begun
// says whether the file looked like a snapshot so far.
func refused(err error, begun bool, where string) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, Err):
		return err
	case begun && errors.Is(err, io.ErrUnexpectedEOF):
		return errCut
	case errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) || begun && errors.Is(err, tar.ErrHeader):
		return fmt.Errorf("%w: %s: %w", errDamaged, where, err)
	}
	return fmt.Errorf("%w: %s: %w", Err, where, err)
}
