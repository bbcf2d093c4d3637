// SPDX-License-Identifier: Apache-2.0

// Package nics finds the RDMA devices of this machine, picks those that --nic and --gid mean, and opens
// them. To pick a NIC in another way, change this package.
package nics
