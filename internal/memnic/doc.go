// SPDX-License-Identifier: Apache-2.0

// Package memnic is an RDMA network in the memory of one process. Its devices implement
// rc.Device: they register memory, and carry out the work requests of reliable connections. The
// package needs no NIC, no kernel module and no privileges.
//
// A network runs in one of two modes. In live mode, the default, each queue pair has a goroutine
// that carries out its work requests, as a NIC does. Retries take the time that the connection's
// attributes ask for, multiplied by the time scale of the network. In manual mode work requests
// are carried out when their sender's completion queue is polled, or when they are posted while
// that queue is armed; an operation without an answer fails at once.
//
// Tests make a network fail: they cut paths between devices, take ports down, remove devices and
// revoke memory. They also choose when the bytes of an acknowledged WRITE reach the memory, and
// run a function between the two halves of an atomic operation.
//
// A network also has streams in memory, over which endpoints find each other without TCP.
//
// All functions that a test gives to a network run while an operation is carried out. They must
// return soon. Except for the function of OnAtomic, they must not call the network.
//
// To let tests cause another failure, change fault.go; to carry out another work request, change
// carry.go.
package memnic
