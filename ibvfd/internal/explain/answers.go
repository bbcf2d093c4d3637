// SPDX-License-Identifier: Apache-2.0

package explain

import "golang.org/x/sys/unix"

// NoSymbol is the answer of a libibverbs without ibv_reg_dmabuf_mr: the errno of a
// function that does not exist.
const NoSymbol = unix.ENOSYS

// Answers holds the errnos with which the provider and the kernel refuse a dma-buf with
// descriptor -1. They tell who registers dma-bufs: a driver that does answers EBADF. If neither
// Takes nor Lacks is true of one of the two, it is not known whether it registers dma-bufs.
type Answers struct{ Provider, Kernel unix.Errno }

// KernelTakes reports whether the kernel's driver is known to register dma-bufs.
func (a Answers) KernelTakes() bool { return a.Kernel == unix.EBADF }

// KernelLacks reports whether the kernel's driver is known not to register dma-bufs.
func (a Answers) KernelLacks() bool {
	return a.Kernel == unix.EOPNOTSUPP || a.Kernel == unix.EPROTONOSUPPORT
}

// ProviderTakes reports whether libibverbs' provider for the device is known to register dma-bufs.
func (a Answers) ProviderTakes() bool { return a.Provider == unix.EBADF }

// ProviderLacks reports whether the provider is known not to register dma-bufs. The provider may
// pass on an EOPNOTSUPP of the kernel's. It proves something about the provider only if the
// kernel registers dma-bufs.
func (a Answers) ProviderLacks() bool {
	return a.Provider == NoSymbol || a.Provider == unix.EOPNOTSUPP && a.KernelTakes()
}
