// SPDX-License-Identifier: Apache-2.0

// Package fault has the words for a registration that was refused: the [Stage] of the
// call at which it was, and the [Cause]. A *ibvfd.RegError is made of them.
package fault
