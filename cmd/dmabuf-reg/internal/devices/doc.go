// SPDX-License-Identifier: Apache-2.0

// Package devices is the subcommand devices: the allocators, the GPUs of NVIDIA and the NICs of this
// machine. To list one more fact of a device, change this package.
package devices
