// SPDX-License-Identifier: Apache-2.0

// Package render writes a run as text: the matrix of predictions and that of proofs, the reasons
// of pairs that are not direct, what to change, and the findings of the checks. To change this
// text, change this package.
//
// Pairs whose reasons differ only in addresses are written as one group, and a remedy of several pairs
// and checks is written once.
package render
