// SPDX-License-Identifier: Apache-2.0

// Package product says whether the vendor's library gives a GPU's memory to NICs: by
// model, product line, virtualisation and kind of memory. To add a product, add a row
// with its source to nvidia.go, nvidia_ids.go, amd.go, intel.go or drivers.go.
//
// Of takes facts that the caller has read from files, and reads no files. If the
// tables do not list a product, the answer is unknown, and never that of a similar
// product.
//
// An answer concerns the product only. The caller decides whether the loaded modules,
// the gates of the driver, the kernel and the fabric let a NIC reach the memory.
package product
