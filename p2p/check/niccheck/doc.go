// SPDX-License-Identifier: Apache-2.0

// Package niccheck has the checks of RDMA devices (NIC) and of the network behind them (NET). To
// add one, write it into its family's file.
package niccheck
