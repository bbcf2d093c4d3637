// SPDX-License-Identifier: Apache-2.0

// Package fields compares JSON output with its documentation, for the commands'
// tests.
//
// Change it to read another form of documentation.
package fields
