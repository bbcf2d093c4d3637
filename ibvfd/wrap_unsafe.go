// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/internal/ioctl"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Wrap makes a Context of a struct ibv_context that other code has opened through the libibverbs of
// this process, as rdma_cm does for its identifiers. The Context borrows it: [Context.Close] does not close
// the device, and the caller must keep it open until Close has returned. Close ends with a call of
// closed, if that is not nil. The caller closes what it makes from the Context. If two Contexts wrap one struct ibv_context,
// each asynchronous event goes to one of them. The error is EINVAL if verbs is nil, and [ErrNotBuilt] in
// a build without cgo.
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
