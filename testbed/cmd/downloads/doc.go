// SPDX-License-Identifier: Apache-2.0

// Command downloads keeps the list of what set-up has downloaded, in build/manifest.json.
// Set-up's scripts call it; `make versions` prints the list.
//
// To add a subcommand, change main.go; package downloads does the work.
package main
