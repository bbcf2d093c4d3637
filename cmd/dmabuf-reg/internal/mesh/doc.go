// SPDX-License-Identifier: Apache-2.0

// Package mesh is `mesh`: which nodes of a cluster reach which, how fast, and which of them is slow. To plan
// a mesh in another way, to show it in another way, or to give a worker other NICs, change this package;
// the run of a mesh and its measurements are in internal/mesh.
package mesh
