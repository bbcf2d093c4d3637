// SPDX-License-Identifier: Apache-2.0

// Package vm boots the nodes of a machine under QEMU, runs commands in them
// and watches their kernels.
//
// node.go starts QEMU, and run.go runs a command on all nodes. Change accel.go to choose an accelerator in another
// way.
package vm
