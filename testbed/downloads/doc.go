// SPDX-License-Identifier: Apache-2.0

// Package downloads keeps the list of what set-up has downloaded, with versions and
// hashes. Each part of set-up leaves a record beside what it has made of its downloads,
// so that the one goes when the other does; the manifest is all records and the Go
// modules.
//
// To add a kind of download, write a file that reads its versions and hashes.
package downloads
