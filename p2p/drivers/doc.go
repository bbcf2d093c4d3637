// SPDX-License-Identifier: Apache-2.0

// Package drivers has the rules of the drivers on both sides of a dma-buf: how a GPU's driver
// exports its memory, how an RDMA device's driver imports it, and what becomes of the import.
//
// [GPUs] and [NICs] find the devices of a machine. [Predict] says what happens when an importer
// attaches to a buffer, pins it if it does so, and maps it. An importer is taken to be alone on
// its buffer. A driver or a series that this package does not know is unknown. To add a driver,
// change this package.
package drivers
