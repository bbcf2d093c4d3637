// SPDX-License-Identifier: Apache-2.0

// Package mesh is the coordinator of a mesh: it gives the workers of many nodes their orders, so that each
// pair of NICs of two nodes is measured once, and says what came of it. To run or report a mesh in another
// way, change this package; the packages below it have the order of the pairs (schedule), the comparison
// (compare), the messages (control), a measurement (probe), the other side (worker), and lists of nodes
// (nodelist).
package mesh
