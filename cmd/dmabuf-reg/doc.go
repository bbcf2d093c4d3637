// SPDX-License-Identifier: Apache-2.0

// Command dmabuf-reg allocates GPU and system memory, exports it as a dma-buf,
// registers it with an RDMA NIC, moves bytes in and out of it and checks every
// one.
//
// root.go puts the subcommands together, and manual.go writes their pages. To add a subcommand, write a package
// below internal, and name it in root.go.
package main
