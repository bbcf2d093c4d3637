// SPDX-License-Identifier: Apache-2.0

package explain

import "golang.org/x/sys/unix"

// NoSymbol is the answer of a libibverbs without ibv_reg_dmabuf_mr: the errno of a
// function that does not exist.
const NoSymbol = unix.ENOSYS

// Answers are what the provider and the kernel answer to the registration of
// descriptor -1, which tells who registers dma-bufs: a driver that does answers EBADF.
type Answers struct{ Provider, Kernel unix.Errno }

// KernelTakes and KernelLacks say whether the kernel's driver registers dma-bufs. What
// neither of them says is unknown.
func (a Answers) KernelTakes() bool { return a.Kernel == unix.EBADF }

// KernelLacks is the opposite of KernelTakes, where that is proven.
func (a Answers) KernelLacks() bool {
	return a.Kernel == unix.EOPNOTSUPP || a.Kernel == unix.EPROTONOSUPPORT
}

// ProviderTakes says whether libibverbs' provider for the device registers dma-bufs.
func (a Answers) ProviderTakes() bool { return a.Provider == unix.EBADF }

// ProviderLacks is the opposite of ProviderTakes, where that is proven. The provider's
// EOPNOTSUPP may be the kernel's, passed on: it proves that the provider lacks the op
// only if the kernel itself gives another answer.
func (a Answers) ProviderLacks() bool {
	return a.Provider == NoSymbol || a.Provider == unix.EOPNOTSUPP && a.KernelTakes()
}
