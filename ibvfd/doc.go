// SPDX-License-Identifier: Apache-2.0

// Package ibvfd registers dma-bufs with RDMA NICs and moves data through them.
//
// [Open] opens a device through libibverbs, which is loaded when it is first
// used: neither the library nor its headers are needed to build, and a program
// starts without it. [Context.AllocPD] and [PD.RegMR] register host memory and
// dma-bufs; [Context.CreateCQ], [PD.CreateQP] and [QP.Connect] make RC queue
// pairs, [QP.Activate] and [QP.CreateAH] UD ones; [QP.PostSend] and [CQ.Poll] move
// data in batches. [Probe], and package ibvfd/ibdev, need no libibverbs and work in a build
// without cgo.
//
// # Waiting
//
// [CQ.PollUntil] polls, which takes a processor and the least time. [CQ.Wait]
// sleeps in Go's poller: it needs no thread of its own, ends with a
// context.Context, and costs an interrupt. [CQ.Arm] and [CQ.WaitEvent] are its
// parts, for a program that waits for several queues. [Context.Events] yields what happens to
// the device beside completions.
//
// # Atomic writes and FLUSH
//
// ibv_post_send(3) knows neither ATOMIC WRITE nor FLUSH; ibv_wr_post(3) does. A
// queue pair with [QPAttr].AtomicWrite, or Flush, posts them by it, in their place
// among the others. Debian 12's libibverbs (44) has the former only. [OpFlush]
// reaches host memory and no dma-buf: the kernel registers those without the
// right to flush.
//
// # States
//
// A work request that fails takes its queue pair to the error state, in which
// everything posted completes flushed. Poll until all of it has, then Reset,
// exchange [QP.Local] anew and Connect again. Connect resets too, where that was
// not done, but keeps the packet numbers that the peer knows; late packets
// of the old connection may then pass for new ones. A NIC may drop what it has
// not delivered of a queue pair that is reset. [QP.Init] before Connect lets
// receives be there for the first message. [QP.Drain] and [QP.Resume] stop and
// go on.
//
// # Device memory
//
// [SendInline] is for host memory only. mlx5 can put short receives into the
// completion, from which the CPU copies them to their buffer; the CPU cannot copy to
// device memory. Therefore this package sets MLX5_SCATTER_TO_CQE=0 for libibverbs
// before it loads it, for the whole process and whatever the environment has. Whether PCIe writes may
// overtake each other is the caller's choice for each MR: AccessRelaxedOrdering
// suits bulk data, and is left out for flags that are polled.
//
// # Two routes
//
// A dma-buf is registered by ibv_reg_dmabuf_mr. Where libibverbs' provider for
// the device lacks that op, the kernel's REG_DMABUF_MR is called on the same
// context's descriptor ([RouteAuto]). [MR.Route] says which it was.
//
// A third, peer-direct, registers a device pointer where the kernel has a
// peer-memory client ([PeerClients]): a [DevicePointer] MR, or after a dma-buf
// was refused, or where there is none, with [RouteAutoPeerDirect]. It is never taken
// unasked.
//
// # What an MR allows
//
// An MR allows what MRAttr.Access says and no more: nothing but reading by the
// local NIC if that is 0. [MR.Rereg] changes it later, and PD and memory too; the
// keys may change then.
//
// # Refusals
//
// A refused registration is a *[RegError]. EOPNOTSUPP alone has five meanings;
// the error tells them apart by evidence: the kernel's answer to the same with
// descriptor -1, the exporter's name, drivers, their versions and parameters, other
// devices that have the buffer attached. It names the cause, the stages between which
// the refusal lies, and the change that helps; where the evidence picks no cause, the
// causes that are possible.
//
// # Lifetimes
//
// Close the queue pairs, then CQs and MRs, the PD, the context: closing what
// is still used answers dmabuf.ErrInUse and frees nothing. Closing twice does
// nothing, use after Close is os.ErrClosed, and both are safe while another
// goroutine uses the object. The dma-buf may be closed once it is registered.
//
// # Memory
//
// RDMA memory must not be Go memory: the NIC writes to it at any time, behind
// the garbage collector's back. Use dma-bufs, or package ibvfd/hostmem.
package ibvfd

// Each object of verbs has a file. To add a call of libibverbs, add it to internal/libibverbs, and a method here.
