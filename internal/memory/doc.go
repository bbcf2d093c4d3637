// SPDX-License-Identifier: Apache-2.0

// Package memory has the memory that RDMA operations move bytes from and to: of this side, and
// of peers.
//
// OpenNIC opens an RDMA device. NIC.Register takes a buffer of package gpualloc, and
// NIC.AllocHost allocates host memory: both return a Buffer, which has slices and a reference
// count, and reports whether the NIC reaches its bytes directly. Otherwise the Buffer is
// staged: the NIC uses pinned host memory in its place, and operations copy the bytes.
//
// A View is a list of buffers with a layout. A Span is a part of a Buffer or of a View, and an
// Operand is a Span while an operation uses it.
//
// NIC.Grant makes keys with which a peer reaches memory of this side, and a RemoteBuffer, which
// describes that memory to the peer in a few bytes.
//
// To register memory in another way, change buffer.go and nic.go; to copy staged bytes in another
// way, staging.go; to describe memory to a peer by more than now, remote.go.
package memory
