// SPDX-License-Identifier: Apache-2.0

// Package terminal writes text for a terminal: colours, and escapes in place of control
// characters that come from files of a machine. To change which characters pass, change this
// package.
package terminal
