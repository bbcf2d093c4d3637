// SPDX-License-Identifier: Apache-2.0

// Package ioctl computes ioctl request numbers and carries requests to the
// kernel. Tests give a package another Transport, such as that of ioctltest.
//
// Change it to add a form of request number, or a way to carry requests.
package ioctl
