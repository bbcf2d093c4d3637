// SPDX-License-Identifier: Apache-2.0

// Package cm connects queue pairs by IP address, over rdma_cm.
//
// An address and a route to it are resolved ([Resolve]), which tells the RDMA
// device, or one is listened on ([Listen]); queue pairs are then connected, with
// some private data each way:
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
// librdmacm is loaded when it is used; neither it nor its headers are needed to
// build. Waiting is done in Go's poller: each ID and Listener has an event
// channel, which is two descriptors, and no thread. A wait whose context ends
// leaves an ID that can only be closed. The kernel needs the module
// rdma_ucm, and the user the right to open /dev/infiniband/rdma_cm.
package cm

// To add a call of librdmacm, change library.go and its two versions; to explain another rejection, change reason.go.
