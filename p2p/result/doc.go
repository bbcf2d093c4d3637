// SPDX-License-Identifier: Apache-2.0

// Package result is the JSON document of one run of p2pcheck: the machine, its GPUs and NICs,
// the prediction and the proof of each pair, the findings of the checks, and the counts and the
// status that follow from them.
//
// [New] writes a machine and its pairs. [Run.AddProofs] and [Run.AddFindings] add the results.
// New versions may add fields, and never remove one. To add a field to the document, change this
// package. The packages above it write a run in other forms.
package result
