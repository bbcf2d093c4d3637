// SPDX-License-Identifier: Apache-2.0

// Package page writes the results of p2pcheck as one HTML file, for a browser: the nodes of a fleet in one
// table, or one machine with its PCI tree.
//
// The file loads nothing: it has the style and the script, and its policy allows no connection. All texts of
// a machine are data, which the script shows as text. To show one more fact, add it in data.go, and in the
// script in assets that draws it. To let a page be larger, change limits.go.
package page
