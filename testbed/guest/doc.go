// SPDX-License-Identifier: Apache-2.0

// Package guest is PID 1 of the virtual machine. It loads modules, puts the
// host's root under a writable overlay, sets up the network and the RDMA
// devices, and then runs the commands that the host sends.
//
// Each step has a file. To prepare one more thing in the guest, add it to setup.go.
package guest
