// SPDX-License-Identifier: Apache-2.0

// Package app is one run of the command: where it prints, how a subcommand's result and errors become
// a document or a table, and the exit status. To print results in another way, change this package.
package app
