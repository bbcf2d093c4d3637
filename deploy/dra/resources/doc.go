// SPDX-License-Identifier: Apache-2.0

// Package resources writes what a node offers as Kubernetes' ResourceSlices have it: devices with
// attributes, and counters that keep a GPU and a NIC from being given away twice. To publish one more
// attribute, write it here, and document it in docs/how-to/dra-pairs.md.
package resources
