// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
)

// registerFD registers a borrowed descriptor. The checks work on a duplicate,
// which the caller cannot close meanwhile; without checks the caller's own
// number goes to the kernel.
func (r *registration) registerFD(attr *MRAttr) error {
	if attr.SkipChecks {
		return r.registerOpen(attr, attr.FD, math.MaxUint64, 0)
	}
	buf, err := dmabuf.Import(attr.FD)
	switch {
	case err == nil:
	case errors.Is(err, unix.EBADF):
		return r.pd.ctx.refuse(attr, fault.CauseClosedFD, unix.EBADF, "", "pass an open descriptor")
	case errors.Is(err, dmabuf.ErrNotDMABuf):
		detail := ""
		if _, e := asFailed(err); e != nil {
			detail = e.Detail
		}
		return r.pd.ctx.refuse(attr, fault.CauseNotDMABuf, unix.EINVAL, detail, "export the memory as a dma-buf and pass that descriptor")
	default: // no descriptor left for a duplicate: the kernel can check as well
		return r.registerOpen(attr, attr.FD, math.MaxUint64, 0)
	}
	defer buf.Close()
	return buf.Do(func(fd int) error { return r.registerOpen(attr, fd, uint64(buf.Size()), buf.Inode()) })
}
