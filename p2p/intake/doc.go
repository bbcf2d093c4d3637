// SPDX-License-Identifier: Apache-2.0

// Package intake reads machines that others send: snapshots, and what rdma_topo of
// rdma-core dumped. Any of them may be hostile. They are read into memory, and what
// they can have is bounded.
//
// To read machines in another form, add a file, and choose it in open.go.
package intake
