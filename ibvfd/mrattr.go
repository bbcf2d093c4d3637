// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
)

// MemoryKind says how an MRAttr names its memory.
type MemoryKind int

// The kinds of memory.
const (
	HostMemory    MemoryKind = iota // MRAttr.Host
	DMABufFD                        // MRAttr.Buf, or MRAttr.FD of MRAttr.FDType
	DevicePointer                   // MRAttr.Pointer; needs a peer-memory client in the kernel: PeerClients
)

// FDType says what kind of descriptor an MR is made from.
type FDType int

// The descriptor types.
const (
	FDTypeDMABuf FDType = iota // the only one that kernels know
)

var fdTypeNames = [...]string{"dma-buf"}

// String returns "dma-buf".
func (t FDType) String() string { return enum.Name(fdTypeNames[:], int(t), "FDType") }

// RoutePolicy says which ways of registering a dma-buf may be taken.
type RoutePolicy int

// The policies.
const (
	// RouteAuto takes ibv_reg_dmabuf_mr, and the kernel's ioctl if the provider does not
	// implement that.
	RouteAuto RoutePolicy = iota
	// RouteProviderOnly takes ibv_reg_dmabuf_mr only.
	RouteProviderOnly
	// RouteIoctlOnly calls the kernel's REG_DMABUF_MR on the context's
	// descriptor, past the provider.
	RouteIoctlOnly
	// RouteAutoPeerDirect is RouteAuto, and then peer-direct on MRAttr.Pointer if no route
	// registers dma-bufs with this NIC, or if the memory has no dma-buf.
	RouteAutoPeerDirect
)

// Route is the call that registered an MR.
type Route string

// The routes.
const (
	RouteHost     Route = "host"                // ibv_reg_mr
	RouteHostBuf  Route = "ibv_reg_buf_mr"      // of host memory that the provider allocated ([PD.AllocHost])
	RouteProvider Route = "ibv_reg_dmabuf_mr"   // libibverbs and its provider
	RouteRegMREx  Route = "ibv_reg_mr_ex"       // the same, by the newer call (rdma-core 59)
	RouteIoctl    Route = "REG_DMABUF_MR ioctl" // the kernel's method, called directly

	// RouteDataDirect is the call of mlx5's library for Data Direct. The NIC then moves the bytes by
	// another PCI function of its card, which has a path to the GPU that does not pass the CPU.
	RouteDataDirect Route = "mlx5dv_reg_dmabuf_mr"

	// RoutePeerDirect is ibv_reg_mr on a device pointer. A peer-memory client in the kernel gives
	// the NIC's driver the bus addresses.
	RoutePeerDirect Route = "peer-direct"
)

// MRAttr is what to register.
type MRAttr struct {
	Kind MemoryKind

	// Host is the memory of a HostMemory MR. It must not be Go memory: the NIC
	// writes to it behind the garbage collector's back. Use AllocHost, or
	// memory from mmap or C.
	Host []byte

	// Buf is the dma-buf of a DMABufFD MR. The caller may close it once RegMR has returned,
	// because the MR holds the buffer. If Buf is nil, RegMR borrows FD for the call.
	//
	// A negative FD and a Pointer say that the memory has no dma-buf. RouteAutoPeerDirect then
	// registers the pointer, if the kernel has a peer-memory client. Every other policy answers
	// EOPNOTSUPP, also with SkipChecks.
	Buf    *dmabuf.Buf
	FDType FDType
	FD     int

	// Pointer is the device pointer of a DevicePointer MR: what cudaMalloc or
	// hipMalloc returned. Of a dma-buf MR it is the pointer to the dma-buf's
	// first byte, for RouteAutoPeerDirect. The memory must stay allocated until
	// the MR is closed.
	Pointer uint64

	// Offset and Length choose the range in bytes: of the dma-buf, of Host, or from Pointer on.
	// Neither needs to be aligned. Length must not be 0.
	Offset, Length uint64

	// IOVA is the address by which work requests name the range's first byte. For a dma-buf its
	// place within a page must be that of Offset (IOVA % pagesize == Offset % pagesize;
	// ibv_reg_dmabuf_mr(3)). For host memory and device pointers 0 stands for the memory's own
	// virtual address.
	IOVA uint64

	// Access is what the MR allows, and no more: 0 is reading by the local NIC
	// only. A dma-buf MR allows LocalWrite, RemoteRead, RemoteWrite,
	// RemoteAtomic and RelaxedOrdering only.
	Access Access

	// Owner, if set, is the memory's owner. The MR holds it until it is closed, so that the memory
	// is not freed before.
	Owner dmabuf.Holder

	// Policy chooses the route for a dma-buf.
	Policy RoutePolicy

	// NoDataDirect keeps RegMR from RouteDataDirect. Without it every policy but RouteIoctlOnly
	// takes that route for the memory of an NVIDIA GPU, if the NIC has such a function
	// ([Context.DataDirect]) and IOVA is a multiple of the page size. [MR.Why] gives the reason.
	NoDataDirect bool

	// Timed measures how long the registration takes: [MR.RegTime].
	Timed bool

	// SkipChecks passes the attributes to the library and the kernel unchecked, to see what these
	// answer.
	SkipChecks bool
}

// unexported reports whether there is a device pointer and no dma-buf.
func (a *MRAttr) unexported() bool {
	return a.Kind == DMABufFD && a.Buf == nil && a.FD < 0 && a.Pointer != 0
}

// what describes the memory for messages.
func (a *MRAttr) what() string {
	switch a.Kind {
	case HostMemory:
		return fmt.Sprintf("%#x bytes at offset %#x of %#x bytes of host memory", a.Length, a.Offset, len(a.Host))
	case DMABufFD:
		if a.Buf != nil {
			return fmt.Sprintf("%#x bytes at offset %#x of %v", a.Length, a.Offset, a.Buf)
		}
		if a.unexported() {
			return fmt.Sprintf("%#x bytes at offset %#x of device pointer %#x", a.Length, a.Offset, a.Pointer)
		}
		if a.FD < 0 {
			return fmt.Sprintf("%#x bytes at offset %#x of memory without a dma-buf", a.Length, a.Offset)
		}
		return fmt.Sprintf("%#x bytes at offset %#x of fd %d", a.Length, a.Offset, a.FD)
	case DevicePointer:
		return fmt.Sprintf("%#x bytes at offset %#x of device pointer %#x", a.Length, a.Offset, a.Pointer)
	}
	return fmt.Sprintf("%#x bytes of memory kind %d", a.Length, int(a.Kind))
}
