// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// ErrNotDMABuf (EINVAL) means that the descriptor is open, and is no dma-buf.
var ErrNotDMABuf = failure.Sentinel("not a dma-buf", unix.EINVAL)

// Holder is memory that must not be freed while something uses it: an MR holds
// the buffer that it was registered on.
type Holder interface {
	// Hold keeps the memory until release is called. A second call of release does
	// nothing. After the memory was freed, Hold returns os.ErrClosed.
	Hold() (release func(), err error)
}
