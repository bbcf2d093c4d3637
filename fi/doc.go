// SPDX-License-Identifier: Apache-2.0

// Package fi moves bytes between the memory of GPUs and hosts by RDMA, with the names and the
// rules of libfabric's fi_rma(3). docs/reference/fi_rma.md maps each function and rule of that page.
//
// [Open] opens an RDMA device as a [Domain]. [Domain.Register] registers memory of package gpualloc,
// and [Domain.AllocHost] allocates host memory. Both return an [MR], which the NIC reaches directly,
// or for which the NIC uses staging memory of the host. Domain.Endpoint makes an Endpoint, which has
// a CQ and an address vector. Endpoint.Connect and Endpoint.Accept return the Addr of a connected
// peer, and Endpoint.Insert that of a peer to which the first operation connects.
//
// An operation has local memory and a peer's memory. Local memory is an IOV, a part of an MR; a
// peer's memory is an RMAIOV, a part of a Key. Endpoint.Key makes a key to local memory, for one
// peer or for all of them. Endpoint.Offer sends it to the peer, whose Endpoint.Offered returns
// it; a program may also encode it, and send it by other means.
//
// # Completions
//
// Operations are asynchronous: their memory belongs to the NIC until the CQ returns an entry with
// the operation's context. The program has to read the CQ, which also posts operations that wait in
// queues. A failed operation makes an entry for [CQ.ReadErr], with the code that libfabric's verbs
// provider reports, and the NIC's status as ProvErrno.
//
// # Order
//
// Writes, messages and atomics to one peer are carried out in the order in which they were posted.
// Reads have no order, except by Fence.
//
// # Errors
//
// Functions return errors in place of libfabric's negative codes. The codes are errnos, such as
// [EAGAIN]: [errors.Is] finds them, and [Code] returns them. An operation that returns an error
// was not posted, and makes no completion.
//
// # Differences
//
// This package refuses flags that it does not support, and ranges outside of the memory. libfabric's
// verbs provider ignores such flags, and lets the NIC refuse such ranges. A test runs both side by
// side; docs/reference/fi_rma.md lists the differences that it finds.
//
// # Lifetimes
//
// Close endpoints, then MRs, then the Domain. Close of an MR or a Domain that is still in use
// returns EBUSY and closes nothing.
package fi

// Each part of libfabric's interface has a file. To add a call, add it to its part's file, and to docs/reference/fi_rma.md.
