// SPDX-License-Identifier: Apache-2.0

// Package manual writes the manual pages of a command, its completions for shells, and its pages of Markdown,
// from its tree of subcommands. One changes here how help text becomes a page. The commands link it only when
// they are built with the tag manual, as `make manual` does; their tests write docs/reference/commands with it
// (`make reference`).
package manual
