// SPDX-License-Identifier: Apache-2.0

// Package kernelonly replaces libibverbs by the kernel's ioctls alone: it makes PDs,
// and answers EOPNOTSUPP to all calls that need a provider.
//
// Change it when package uverbs can do more.
package kernelonly
