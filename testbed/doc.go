// SPDX-License-Identifier: Apache-2.0

// Package testbed is the root of the test bed: virtual machines that run
// Debian's own kernels with software RDMA devices and buffer exporters, so
// that everything here can be tested on a machine that has neither.
//
// It is a Go module of its own, so that what it needs stays out of the
// library's requirements. The command is cmd/testbed; README.md says how to
// use it. The packages, in the order in which a run passes through them:
//
//   - layout: where files lie below the build directory
//   - apt, kernel: fetch a kernel, its headers and its source from Debian
//   - downloads: versions and hashes of what set-up has downloaded
//   - machine: a virtual machine as data
//   - module, initrd: the initramfs that the guest starts from, and its modules
//   - vm: boot it, run commands, watch it
//   - klog: find fault reports in the kernel's log
//   - wire: the messages between host and guest
//   - guest: the guest's init, which is the same binary
//   - gotest, suite: Go test binaries and shell tests, and their results
//
// To change a step of a run, change its package.
package testbed
