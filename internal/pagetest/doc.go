// SPDX-License-Identifier: Apache-2.0

// Package pagetest reads the Markdown pages of the repository for tests: their blocks of Go, their commands
// with what these print, the anchors of their headings. Change it to read something else in pages, or to
// compare an output with a page in another way.
package pagetest
