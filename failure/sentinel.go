// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
)

// The refusals of this module that callers test for by errors.Is, each with its errno.
var (
	// ErrInUse (EBUSY) means that something still uses the memory. Nothing was
	// freed.
	ErrInUse = Sentinel("still in use", unix.EBUSY)
	// ErrRange (EINVAL) means that an offset, a length or another argument is out
	// of range.
	ErrRange = Sentinel("out of range", unix.EINVAL)
	// ErrLimit (ENOMEM) means that the call would exceed a limit of the exporter,
	// of the memory or of the process. Nothing was attempted.
	ErrLimit = Sentinel("over the limit", unix.ENOMEM)
)

// sentinel is a refusal of this module, with the errno that the kernel has for it.
type sentinel struct {
	text  string
	errno unix.Errno
}

// Sentinel returns an error value for a refusal of this module. Its text is text and the
// name of the errno. errors.Is and errors.As find the value itself and the errno.
func Sentinel(text string, errno unix.Errno) error { return &sentinel{text, errno} }

func (s *sentinel) Error() string { return s.text + " (" + errno.Name(s.errno) + ")" }
func (s *sentinel) Unwrap() error { return s.errno }
