// SPDX-License-Identifier: Apache-2.0

// Package chain computes the outcome of a pair of a GPU and a NIC from one answer for each link
// of its chain of evidence.
//
// A pair is Direct only if every link from Library to Fabric is known to hold and the log
// does not contradict, or if a proof covers these links. Only [Chain.Conclude] and
// [Chain.ConcludeProven] make a [Verdict]. The zero [Answer] is unknown. To add a link, or
// to change how links make a verdict, change this package. The packages above it compute
// the answer of each link.
package chain
