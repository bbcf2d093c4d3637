// SPDX-License-Identifier: Apache-2.0

// Package module orders kernel modules by their dependencies and reads them,
// compressed or not, for an initramfs.
//
// Change it to read another compression.
package module
