// SPDX-License-Identifier: Apache-2.0

package ioctl

// The request layout of include/uapi/asm-generic/ioctl.h, which x86, arm64,
// riscv and s390 share. powerpc, mips, sparc, alpha and parisc differ; the
// module does not build for them.
const (
	nrBits   = 8
	typeBits = 8
	sizeBits = 14

	typeShift = nrBits
	sizeShift = typeShift + typeBits
	dirShift  = sizeShift + sizeBits

	dirNone  = 0
	dirWrite = 1
	dirRead  = 2
)

// ioc is _IOC(dir, type, nr, size).
func ioc(dir, typ, nr, size uint32) uint32 {
	return dir<<dirShift | size<<sizeShift | typ<<typeShift | nr
}

// IO is _IO(type, nr): no argument.
func IO(typ, nr uint32) uint32 { return ioc(dirNone, typ, nr, 0) }

// IOW is _IOW(type, nr, size): the kernel reads size bytes.
func IOW(typ, nr, size uint32) uint32 { return ioc(dirWrite, typ, nr, size) }

// IOWR is _IOWR(type, nr, size): both ways.
func IOWR(typ, nr, size uint32) uint32 { return ioc(dirRead|dirWrite, typ, nr, size) }
