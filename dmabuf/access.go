// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"fmt"

	"github.com/gpurdma/gpurdma/failure"
)

// Access says what the CPU does, or is going to do, with a buffer.
type Access int

// The directions of DMA_BUF_SYNC_READ, _WRITE and _RW.
const (
	Read Access = 1 << iota
	Write
	ReadWrite = Read | Write
)

// String returns "read", "write" or "read-write".
func (a Access) String() string {
	switch a {
	case Read:
		return "read"
	case Write:
		return "write"
	case ReadWrite:
		return "read-write"
	}
	return fmt.Sprintf("Access(%d)", int(a))
}

func (a Access) flags(op, device string) (uint32, error) {
	switch a {
	case Read:
		return syncRead, nil
	case Write:
		return syncWrite, nil
	case ReadWrite:
		return syncRead | syncWrite, nil
	}
	return 0, &failure.Error{
		Op: op, Device: device,
		Detail: a.String(),
		Remedy: "use Read, Write or ReadWrite",
		Err:    failure.ErrRange,
	}
}

// BeginAccess prepares the buffer for access by the CPU through a mapping:
// caches are made coherent, and the exporter waits for fences or moves the
// memory where the CPU reaches it. Every BeginAccess needs an EndAccess with
// the same Access. A [Mapping]'s ReadAt and WriteAt do both.
//
// BeginAccess makes caches coherent and excludes no one: other devices and
// processes can write at the same time. Source: DMA_BUF_IOCTL_SYNC in
// include/uapi/linux/dma-buf.h.
func (b *Buf) BeginAccess(a Access) error { return b.bracket(a, syncStart) }

// EndAccess ends the access that BeginAccess with the same Access began.
// Devices then see the written bytes.
func (b *Buf) EndAccess(a Access) error { return b.bracket(a, syncEnd) }

func (b *Buf) bracket(a Access, edge uint64) error {
	op := "DMA_BUF_IOCTL_SYNC start"
	if edge == syncEnd {
		op = "DMA_BUF_IOCTL_SYNC end"
	}
	flags, err := a.flags(op, b.fd.String())
	if err != nil {
		return err
	}
	return b.fail(op, b.fd.Do(func(raw int) error { return syncAccess(b.t, raw, uint64(flags)|edge) }))
}
