// SPDX-License-Identifier: Apache-2.0

package errs

import (
	"fmt"
	"io"
)

// Join joins two errors. If one is nil, it returns the other one as it is.
func Join(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return fmt.Errorf("%w; %w", a, b) // in one line
}

// Close closes c, and joins its error to err.
func Close(err error, c io.Closer) error { return Join(err, c.Close()) }
