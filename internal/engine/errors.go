// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// The errors that callers test for, besides those of package dmabuf.
var (
	// ErrNotConnected means that the connection to the peer has ended, or never existed.
	ErrNotConnected = rc.ErrNotConnected
	// ErrMalformed means that a peer sent bytes that no peer of this package sends.
	ErrMalformed = exchange.ErrMalformed
	// ErrUnsafe means that the exchange would not be encrypted.
	ErrUnsafe = exchange.ErrUnsafe
	// ErrRejected means that the peer refuses the connection. The error quotes the peer's text.
	ErrRejected = exchange.ErrRejected
)

// ErrClosed means that this side has closed an object that it uses. The error names the object.
var ErrClosed = errs.ErrClosed

// rejectedHere is the error of a caller that this side's program has rejected. It is ErrRejected.
type rejectedHere string

func (r rejectedHere) Error() string { return fmt.Sprintf("rejected by this side: %q", string(r)) }

func (rejectedHere) Is(target error) bool { return target == ErrRejected }

// Reject returns an error for EndpointOptions.Admit. The caller receives its text, of at most 256
// bytes.
func Reject(text string) error {
	return exchange.NewRejection(text, rejectedHere(exchange.Bounded(text)))
}
