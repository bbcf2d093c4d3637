// SPDX-License-Identifier: Apache-2.0

// Package page writes the results of p2pcheck as one HTML file, for a browser: the nodes of a fleet beside each
// other, or one machine with its PCI tree.
//
// The file loads nothing: style and script are in it, and its policy lets no connection pass. All texts of a
// machine are data, which the script shows as text. To show one more fact, add it in data.go and in the script
// that draws it, below assets. To let a page be larger, change limits.go.
package page
