// SPDX-License-Identifier: Apache-2.0

// Package operation has the words in which a caller of the engine asks for an operation and
// learns of its end: the kinds of operations, their flags, completions, and the errors of
// operations. Change it to add a kind, a flag, or the remedy for a status of the NIC. What an
// operation does is in package engine.
package operation
