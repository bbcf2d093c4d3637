// SPDX-License-Identifier: Apache-2.0

// Package verify is the subcommand verify: a NIC writes and reads the memory of each allocator, and every
// byte is compared. To try memory with NICs in another way, change this package.
package verify
