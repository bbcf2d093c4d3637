// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/internal/ioctl"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Wrap makes a Context of a struct ibv_context that other code opened through
// this process's libibverbs: rdma_cm does for each of its identifiers. The
// Context borrows it: objects made from it are the Context's own, Close closes no
// device, and the code that opened it keeps it open until then. closed, which may be nil, is
// called at Close's end. Asynchronous events of a device that is wrapped twice go
// to either Context. In a build without cgo the answer is [ErrNotBuilt].
func Wrap(verbs unsafe.Pointer, closed func()) (*Context, error) {
	if _, err := libibverbs.Load(); err != nil {
		return nil, err
	}
	if verbs == nil {
		e := failed("wrap a verbs context", "", unix.EINVAL)
		e.Detail = "there is none"
		e.Remedy = "an rdma_cm identifier has one when its address is resolved"
		return nil, e
	}
	c, name, err := libibverbs.Borrow(verbs)
	if err != nil {
		return nil, err
	}
	return wrap(borrowed{c, closed}, name, sysfs.New(""), ioctl.Kernel)
}
