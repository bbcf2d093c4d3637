// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// postRefusal is why a work request was not posted.
type postRefusal int

const (
	postOK          postRefusal = iota
	postTooMany                 // SGEs than the queue was made for
	postOpcode                  // an opcode that this transport does not have
	postNoAH                    // no address handle, or none that is open
	postNoAtomic                // no atomic writes
	postNoFlush                 // no FLUSH
	postNoSGE                   // SGEs where there are none to be
	postNoPlacement             // a FLUSH to nowhere
	postForeign                 // inline data that is not at its address in this process
	postUnaligned               // an atomic operation at no multiple of 8
	postProvider                // the provider's errno
)

// explainPost says in e what is wrong with a work request.
func explainPost(e *dmabuf.Error, depth, sges int, bad postRefusal, errno unix.Errno) *dmabuf.Error {
	switch {
	case bad == postTooMany:
		e.Detail = " has too many SGEs"
		e.Remedy = fmt.Sprintf("the queue was made for %d", sges)
	case bad == postOpcode:
		e.Detail = " has an opcode that this transport does not have"
	case bad == postNoAH:
		e.Detail = " names no open address handle of this PD"
		e.Remedy = "each work request of a UD queue pair needs AH, QPN and QKey"
	case bad == postNoAtomic:
		e.Detail = " is an atomic write"
		e.Remedy = "make the queue pair with QPAttr.AtomicWrite"
	case bad == postNoFlush:
		e.Detail = " is a FLUSH"
		e.Remedy = "make the queue pair with QPAttr.Flush"
	case bad == postNoSGE:
		e.Detail = " has SGEs, which neither an atomic write nor a FLUSH has"
		e.Remedy = "put an atomic write's 8 bytes into CompareAdd, and a FLUSH's range into RemoteAddr and FlushLength"
	case bad == postNoPlacement:
		e.Detail = " is a FLUSH to no placement that there is"
		e.Remedy = "set Placement to FlushGlobal, FlushPersistent or both"
	case bad == postForeign:
		e.Detail = " is to copy inline data from a dma-buf or a device pointer, or from below 64 KiB: the CPU copies it, from this process's own memory"
		e.Remedy = "post what is in a dma-buf, or on a GPU, without SendInline; of memory of this process no SGE needs a key"
	case bad == postUnaligned:
		e.Detail = " is an atomic operation at a remote address that is no multiple of 8"
		e.Remedy = "choose one that is: every NIC refuses others, this one or the peer's (InfiniBand 1.2, 9.4.5)"
	case errno == unix.ENOMEM:
		e.Remedy = fmt.Sprintf("the queue holds %d; poll completions before posting more", depth)
	case errno == unix.EINVAL:
		e.Remedy = "check the queue's state, opcode, flags and SGEs"
	}
	return e
}
