// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"golang.org/x/sys/unix"
)

// RemoteSpan is a peer's memory in an operation: Length bytes from Offset on
// (struct fi_rma_iov).
type RemoteSpan struct {
	Buf            *RemoteBuffer
	Offset, Length int64
}

// All returns all bytes of the remote buffer.
func (r *RemoteBuffer) All() RemoteSpan { return RemoteSpan{Buf: r, Length: r.Size()} }

// Part returns length bytes of the remote buffer from offset on.
func (r *RemoteBuffer) Part(offset, length int64) RemoteSpan {
	return RemoteSpan{Buf: r, Offset: offset, Length: length}
}

// Check checks a remote span as far as that is possible without the peer's NIC.
func (r *RemoteSpan) Check(op string, need ibvfd.Access) error {
	switch {
	case r.Buf == nil && r.Length == 0 && r.Offset == 0:
		return nil
	case r.Buf == nil:
		return &dmabuf.Error{Op: op, Detail: fmt.Sprintf("a span of %d bytes names no memory of the peer", r.Length), Remedy: "name what the peer has shared", Err: unix.EINVAL}
	case !within(r.Offset, r.Length, r.Buf.Size()):
		return OutOfRange(op, r.Buf.String(), r.Offset, r.Length, r.Buf.Size())
	case r.Buf.access&need != need:
		return &dmabuf.Error{
			Op: op, Device: r.Buf.String(), Err: unix.EACCES,
			Detail: fmt.Sprintf("it allows %v; this takes %v", r.Buf.access, need), Remedy: "the peer must share it with that access",
		}
	}
	return nil
}

// Window returns the remote memory for package lower.
func (r *RemoteSpan) Window() lower.Window {
	return lower.Window{Layout: r.Buf.layout, Spaces: r.Buf.spaces, Off: r.Offset, Len: r.Length}
}
