// SPDX-License-Identifier: Apache-2.0

// Command p2pcheck predicts, for every GPU and RDMA NIC of a machine, whether the NIC reaches the
// GPU's memory, and names the obstacles. To add a subcommand, write it into a file of its own, and name
// it in root.go.
package main
