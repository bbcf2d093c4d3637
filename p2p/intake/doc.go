// SPDX-License-Identifier: Apache-2.0

// Package intake reads descriptions of machines that may be hostile: snapshots,
// and dumps of rdma_topo (rdma-core). It reads them into memory, and bounds their
// size.
//
// To read another kind of description, add a file, and choose it in open.go.
package intake
