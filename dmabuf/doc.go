// SPDX-License-Identifier: Apache-2.0

// Package dmabuf is one Linux dma-buf file descriptor as a type.
//
// A dma-buf is memory that one driver exports and others import. User space
// sees it as a file descriptor, and this package proves that a descriptor is
// one ([New], [Import]), reads its identity ([Buf.Info]), maps it ([Buf.Map]),
// brackets CPU access, waits for fences, and passes it between processes
// ([Send], [Receive]). Two exporters of the kernel that need no device are
// here: udmabuf ([CreateUDMABuf]) and the dma-heaps ([OpenHeap]). [Inventory]
// lists which process holds which dma-buf.
//
// # Ownership
//
// [New] takes a descriptor, [Import] borrows one and works on a duplicate. A
// [Buf] closes its descriptor in [Buf.Close], which may be called again. The
// kernel frees the memory when no descriptor in any process, no mapping and no
// importer, such as an RDMA memory region, has a reference to it. After Close
// the methods that use the descriptor return os.ErrClosed.
//
// # Errors
//
// Most errors are [*failure.Error] values. errors.Is finds in them the errno
// (unix.EINVAL), the errors of this package and those of io/fs.
// errors.ErrUnsupported stands for ENOTTY, EOPNOTSUPP, ENOSYS and 524, the
// kernel's internal ENOTSUPP.
//
// # Kernels
//
// Identity, mapping and access brackets work from Linux 5.3 on. Sync files of
// a dma-buf need 6.0, udmabuf 4.20, dma-heaps 5.6. Sources of the rules are
// include/uapi/linux/dma-buf.h and Documentation/driver-api/dma-buf.rst.
package dmabuf

// An abi_*.go has what a header of the kernel's has. To add an exporter, write a file for it as udmabuf.go is; to
// read another fact of a buffer, change info.go, or inventory.go for those of all processes.
