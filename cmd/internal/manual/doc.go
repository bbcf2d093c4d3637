// SPDX-License-Identifier: Apache-2.0

// Package manual writes the manual pages of a command, and its completions for shells, from its tree of
// subcommands. One changes here how help text becomes a page. The commands link it only when they are built
// with the tag manual, as `make manual` does.
package manual
