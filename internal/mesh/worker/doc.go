// SPDX-License-Identifier: Apache-2.0

// Package worker serves the coordinators of meshes on one node, one at a time: it lets NICs be called, and
// lets them call those of other nodes of the coordinator's list. To answer another order, or to refuse one,
// change this package.
package worker
