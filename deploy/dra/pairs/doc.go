// SPDX-License-Identifier: Apache-2.0

// Package pairs chooses which pairs of a GPU and a NIC a node offers, in which order, and which sets
// of them. It knows nothing of Kubernetes. To prefer other pairs, or to make other sets, change it.
//
// A scheduler takes the first device that fits, so the order decides how many requests can be met.
// The pairs of a maximum matching come first: as long as requests take these, no pair takes the GPU or
// the NIC that another one needs. Further pairs of a GPU follow, a bounded number: a scheduler tries
// all combinations before it refuses a request, and with many pairs that does not end in time.
package pairs
