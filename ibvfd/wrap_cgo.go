// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

// #include "verbs_lib.h"
import "C"

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/ioctl"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Wrap makes a Context of a struct ibv_context that somebody else opened through
// this process's libibverbs: rdma_cm does for each of its identifiers. The
// Context borrows it: what is made from it is the Context's own, Close closes no
// device, and whoever opened it keeps it until then. closed, which may be nil, is
// called at Close's end. Asynchronous events of a device that is wrapped twice go
// to either Context.
func Wrap(verbs unsafe.Pointer, closed func()) (*Context, error) {
	v, err := library()
	if err != nil {
		return nil, err
	}
	if verbs == nil {
		e := failed("wrap a verbs context", "", unix.EINVAL)
		e.Detail = "there is none"
		e.Remedy = "an rdma_cm identifier has one when its address is resolved"
		return nil, e
	}
	lib := v.(*libibverbs) // library makes no other
	ctx := (*C.struct_vb_context)(verbs)
	name := C.GoString(C.vb_context_name(lib.c, ctx))
	return wrap(borrowed{&libContext{lib, ctx}, closed}, name, sysfs.New(""), ioctl.Kernel)
}
