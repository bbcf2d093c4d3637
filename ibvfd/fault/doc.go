// SPDX-License-Identifier: Apache-2.0

// Package fault has the words for a registration that was refused: the [Stage] of the
// call at which it was, and the [Cause]. A *ibvfd.RegError is made of them.
package fault

// To add a cause or a stage, change this package, and internal/explain, which finds it.
