// SPDX-License-Identifier: Apache-2.0

// Package cm connects queue pairs by IP address, over rdma_cm.
//
// A client resolves the server's address and the route to it ([Resolve]), which tells the RDMA
// device. A server listens ([Listen]). The two then connect a queue pair each, and may send each
// other some private data:
//
//	client                                 server
//	id := Resolve(ctx, "10.0.0.1:7471")    l := Listen("10.0.0.1:7471")
//	                                       req := l.Accept(ctx)
//	id.Connect(ctx, qp, p)                 req.Accept(ctx, qp, p), or req.Reject(data)
//	id.Disconnect(ctx)                     req.Wait(ctx)
//
// The queue pairs are ibvfd's, on any Context of the device that ID.Device
// names: one that ibvfd opened, or [ID.Context], which is rdma_cm's own.
// Connect and Accept take the attributes from rdma_cm (rdma_init_qp_attr(3)) and
// bring the queue pair to RTS. The first receives can be posted before,
// after [ibvfd.QP.Init].
//
// rdma_cm authenticates no peer and encrypts nothing: an address can be claimed,
// and the private data can be read and changed on the path. A program that must
// know the peer asks it after the connection is up, as package gpurdma does with
// TLS.
//
// The package loads librdmacm when it is first used, so a build needs neither it nor its headers.
// It waits in Go's poller: each ID and Listener has an event channel, which takes two descriptors
// and no thread. If the context of Connect or Accept ends, the ID can only be closed. The kernel
// needs the module rdma_ucm, and the user the right to open /dev/infiniband/rdma_cm.
package cm

// To add a call of librdmacm, change library.go and its two versions; to explain another rejection, change reason.go.
