// SPDX-License-Identifier: Apache-2.0

package engine

import (
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
