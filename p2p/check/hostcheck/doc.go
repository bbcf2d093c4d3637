// SPDX-License-Identifier: Apache-2.0

// Package hostcheck has the checks of the host: the kernel (KRN), what the program may see (ENV),
// limits (LIM), containers (CTR, K8S), guests (VM) and virtual functions (VF). To add one, write it
// into its family's file.
package hostcheck
