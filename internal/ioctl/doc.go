// SPDX-License-Identifier: Apache-2.0

// Package ioctl computes ioctl request numbers and carries requests to the
// kernel, or to a script in tests.
package ioctl
