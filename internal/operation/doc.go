// SPDX-License-Identifier: Apache-2.0

// Package operation has the types that a caller uses to ask the engine for an operation, and to
// read its result: the kinds of operations, their flags, completions, and the errors of
// operations. Change it to add a kind, a flag, or the remedy for a status of the NIC. Packages
// request and workqueue carry operations out.
package operation
