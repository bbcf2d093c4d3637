// SPDX-License-Identifier: Apache-2.0

// Package chain says what a pair of a GPU and a NIC comes to, from one answer for each link of
// its chain of evidence.
//
// A pair is [Direct] only if every link from [Library] to [Fabric] is known to hold and the
// log does not contradict, or if a proof covers them. No other package can make a [Verdict]:
// [Chain.Conclude] is the only way to one, and the zero value of an [Answer] is unknown. To add
// a link, or to change how links make a verdict, change this package; how a link is answered
// belongs in the packages above it.
package chain
