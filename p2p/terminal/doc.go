// SPDX-License-Identifier: Apache-2.0

// Package terminal writes text for a terminal: with colours, and with escapes in place
// of control characters, which files of a machine may have. To change which characters
// pass, change this package.
package terminal
