// SPDX-License-Identifier: Apache-2.0

// Package mrcache keeps memory regions on dma-bufs registered after their use,
// for the next one: a registration takes system calls, a hit takes neither
// those nor an allocation.
//
// # What is the same memory
//
// A buffer is known by its inode number, never by a descriptor's, which the
// kernel gives out again. Inode numbers of dma-bufs count up from boot and do
// not repeat (dma_buf_getfile in drivers/dma-buf/dma-buf.c); beyond that, every
// region holds its dma-buf, so that the number of a buffer that the cache knows
// cannot be another's. A request hits a region of the same buffer and PD with
// exactly the access asked for, no more, whose range contains the one asked
// for.
//
// # Lifetimes
//
// [Cache.Get] returns a [Ref], which keeps its region until Release. Regions
// that nobody uses stay, oldest use first to go, until room is needed. They
// keep their buffer's memory, even after every descriptor of it was closed:
// whoever frees a buffer for good calls [Cache.Invalidate] first. It is for
// buffers that were revoked, too: no Get returns their regions from then on,
// and those in use are deregistered with their last Release.
//
// # Revocation
//
// A GPU's driver can take the memory of a buffer away for good from those who
// import it so that it can (irdma, and mlx5, which follows the buffer and maps
// it again where that is possible). Their regions then fail every access, also
// when the buffer is given back, and look no different: the kernel has neither
// an event for it nor an attribute that shows it. It comes out with the first
// operation: a local protection error here, a remote access error at the peer.
// So whoever posts operations hands their errors to [Ref.Failed], and whoever
// gives keys to a peer has the peer report its errors, or does so when a queue
// pair reports an access error (EventQPAccessErr). Until then Get returns the
// region; afterwards it registers anew, which the driver refuses while the
// buffer is away.
//
// # Keys of peers
//
// A region is the cache's, and its keys outlive a Ref: a peer that was given the
// rkey can use it for as long as the region stays. gpurdma's endpoints, whose keys
// end with the connection that they were given for, therefore do not share by a
// cache. For local keys, and peers that may keep theirs, it takes the cost of
// registrations away.
//
// The cache is bounded, in regions and in bytes. What is in use cannot go: a
// Get for which there is no room is refused with dmabuf.ErrLimit.
package mrcache
