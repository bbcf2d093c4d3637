// SPDX-License-Identifier: Apache-2.0

package page

// Limits of a page. A run file can contain more. The page leaves the rest out, and says how much.
const (
	maxText     = 2_000     // bytes of one text
	maxWhy      = 20        // reasons of a pair or a cause
	maxEvidence = 40        // of a link
	maxNames    = 200       // names in a list: checks of a node, pairs of a cause
	maxDrift    = 200       // differences of a node
	changeBytes = 90        // of a difference in the file, without its texts
	maxCauses   = 2_000     // of a fleet
	maxChecks   = 2_000     // findings of a machine
	maxTree     = 4_000     // functions of a tree
	maxShown    = 4_000     // pairs of a machine
	maxDetails  = 16 << 20  // bytes of all details of pairs, with their texts; beyond, pairs have an outcome only, and lists maxFull
	maxTexts    = 32 << 20  // bytes of all texts, without names of nodes
	maxFull     = 5         // names and differences in a list of a page that is full
	maxPairs    = 256       // of a node of a page that is full
	maxCells    = 2_000_000 // pairs of all kinds of nodes
)
