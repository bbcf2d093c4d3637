// SPDX-License-Identifier: Apache-2.0

// Package drivers has the rules of the drivers on both sides of a dma-buf: how a GPU's driver
// exports its memory, how an RDMA device's driver imports it, and with which result.
//
// [GPUs] and [NICs] find the devices of a machine. [Predict] predicts what happens when an importer
// attaches to a buffer, pins it if its driver pins, and maps it. The rules assume that the buffer
// has no other importer. The answer for a driver or a series that this package does not know is
// unknown. To add a driver, change this package.
package drivers
