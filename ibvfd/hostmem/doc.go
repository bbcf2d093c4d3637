// SPDX-License-Identifier: Apache-2.0

// Package hostmem maps memory of the machine for RDMA. RDMA memory must not be Go
// memory, because the NIC writes to it at any time and the garbage collector does not
// know.
package hostmem

// To map memory of another kind, change hostmem.go.
