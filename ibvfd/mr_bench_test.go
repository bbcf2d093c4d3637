// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// idle is a kernel that answers at once: every MR method succeeds.
type idle struct{}

func (idle) Ioctl(_ int, _ uint32, arg unsafe.Pointer) error {
	if *(*uint16)(unsafe.Add(arg, 2)) != 7 { // hdr.object_id
		return unix.EPROTONOSUPPORT
	}
	return nil
}

// The Go code of a registration and its end, without the kernel's part.
func BenchmarkRegister(b *testing.B) {
	c, err := open(newScript(), "roce0", deviceTree(b), idle{})
	if err != nil {
		b.Fatal(err)
	}
	pd, err := c.AllocPD()
	if err != nil {
		b.Fatal(err)
	}
	attr := MRAttr{Kind: DMABufFD, FD: 5, Length: 1 << 20, Access: AccessLocalWrite, Policy: RouteIoctlOnly, SkipChecks: true}
	b.ReportAllocs()
	for b.Loop() {
		mr, err := pd.RegMR(attr)
		if err != nil {
			b.Fatal(err)
		}
		if err := mr.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
