// SPDX-License-Identifier: Apache-2.0

package errs

import (
	"net"
	"os"
)

// ErrClosed is what all errors of Closed are.
var ErrClosed error = &closed{what: "it"}

// Closed returns the error for the use of something that this side has closed, such as
// "listener at 10.0.0.1:7471". It is ErrClosed, net.ErrClosed, os.ErrClosed, and also.
func Closed(what string, also ...error) error { return &closed{what, also} }

type closed struct {
	what string
	also []error
}

func (c *closed) Error() string { return "already closed: " + c.what }

// Is reports whether the error is a target.
func (c *closed) Is(target error) bool {
	for _, a := range c.also {
		if target == a {
			return true
		}
	}
	return target == ErrClosed || target == net.ErrClosed || target == os.ErrClosed
}
