// SPDX-License-Identifier: Apache-2.0

// Package ibvfd registers dma-bufs with RDMA NICs and moves data through them.
//
// [Open] opens a device through libibverbs. It loads the library when it is first called, so a
// build needs neither the library nor its headers, and a program starts without it.
// [Context.AllocPD] and [PD.RegMR] register host memory and dma-bufs. [Context.CreateCQ],
// [PD.CreateQP] and [QP.Connect] make RC queue pairs; [QP.Activate] and [QP.CreateAH] make UD ones.
// [QP.PostSend] and [CQ.Poll] move data in batches. [Probe] and package ibvfd/ibdev need no
// libibverbs, and work in a build without cgo.
//
// # Waiting
//
// [CQ.PollUntil] polls: it has the lowest latency and takes a processor. [CQ.Wait] sleeps in Go's
// poller: it costs an interrupt, needs no thread of its own, and ends with a context.Context. A
// program that waits for several queues takes the steps of Wait, [CQ.Arm] and [CQ.WaitEvent].
// [Context.Events] yields the device's other events.
//
// # Atomic writes and FLUSH
//
// ibv_post_send(3) has neither ATOMIC WRITE nor FLUSH; ibv_wr_post(3) has both. A queue pair with
// [QPAttr].AtomicWrite, or Flush, posts all its work requests by the latter, in their order. Debian
// 12's libibverbs (44) has ATOMIC WRITE only. [OpFlush] reaches host memory and no dma-buf, because
// the kernel registers dma-bufs without the right to flush.
//
// # States
//
// A work request that fails takes its queue pair to the error state. The NIC then completes
// everything that is posted as flushed. The caller polls until all of that has completed, calls
// Reset, exchanges [QP.Local] anew and calls Connect again. Connect resets a queue pair that was
// not reset, but keeps the packet numbers that the peer knows, so late packets of the old
// connection may pass for new ones. A reset may drop completions that were not polled. [QP.Init]
// before Connect lets the caller post receives for the first message. [QP.Drain] stops a send queue
// after the work request that it is at, and [QP.Resume] lets it go on.
//
// # Device memory
//
// [SendInline] is for host memory only: the CPU copies the bytes, and it cannot copy from device
// memory. For the same reason mlx5 must not put short receives into the completion, from which the
// CPU copies them to their buffer. This package therefore sets MLX5_SCATTER_TO_CQE=0 for the whole
// process, whatever the environment has, before it loads libibverbs. The caller chooses for each
// MR whether the NIC's PCIe writes may overtake each other: AccessRelaxedOrdering suits bulk data,
// and not flags that a program polls.
//
// # Routes
//
// [PD.RegMR] registers a dma-buf by ibv_reg_dmabuf_mr. If the device's provider does not implement
// that, it calls the kernel's REG_DMABUF_MR on the same context's descriptor ([RouteAuto]).
// [MR.Route] says which it was.
//
// A third route, peer-direct, registers a device pointer if the kernel has a peer-memory client
// ([PeerClients]). RegMR takes it only if the caller asks: by a [DevicePointer] MR, or by
// [RouteAutoPeerDirect] for memory whose dma-buf was refused or that has none.
//
// # What an MR allows
//
// An MR allows what MRAttr.Access says and no more: if that is 0, only reading by the local NIC.
// [MR.Rereg] changes access, PD and memory later. The keys may change then.
//
// # Refusals
//
// A refused registration is a *[RegError]. EOPNOTSUPP alone has five meanings. The error tells them
// apart by evidence: the kernel's answer to the same request with descriptor -1, the exporter's
// name, the drivers, their versions and parameters, and which other devices have the buffer
// attached. It names the cause, the stages between which the refusal lies, and the change that
// helps. If the evidence leaves several causes, the error lists them.
//
// # Lifetimes
//
// The caller closes queue pairs first, then CQs and MRs, then the PD, then the context. A Close of
// an object in use frees nothing and answers failure.ErrInUse. Closing again does nothing. Use
// after Close is os.ErrClosed. Both are safe while another goroutine uses the object. The caller
// may close a dma-buf once it is registered.
//
// # Memory
//
// RDMA memory must not be Go memory: the NIC writes to it at any time, behind
// the garbage collector's back. Use dma-bufs, or package ibvfd/hostmem.
package ibvfd

// Each object of verbs has a file. To add a call of libibverbs, add it to internal/libibverbs, and a method here.
