// SPDX-License-Identifier: Apache-2.0

// Package fleet compares runs of p2pcheck: of one node before and after, or of many nodes at once. Change it to
// read another version of the JSON document, to compare another fact, or to group nodes in another way.
//
// [Read] reads a run from a file of unknown origin, and bounds its cost. [Compare] lists the
// differences of two runs. [Report] merges the runs of a cluster: it keeps a summary of each and drops the
// rest, so that its memory grows with what differs among the nodes.
package fleet
