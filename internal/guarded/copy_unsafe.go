// SPDX-License-Identifier: Apache-2.0

package guarded

import (
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Copy copies like copy, and turns the SIGBUS or SIGSEGV of a page that is
// gone (a device that was unplugged, a file that shrank) into EFAULT. How much
// was copied is then unknown.
func Copy(dst, src []byte) (err error) {
	if len(dst) == 0 || len(src) == 0 {
		return nil
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		fault, ok := r.(interface{ Addr() uintptr })
		if !ok || !(inside(dst, fault.Addr()) || inside(src, fault.Addr())) {
			panic(r)
		}
		err = unix.EFAULT
	}()
	copy(dst, src)
	return nil
}

func inside(b []byte, addr uintptr) bool {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return addr >= start && addr-start < uintptr(len(b))
}
