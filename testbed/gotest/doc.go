// SPDX-License-Identifier: Apache-2.0

// Package gotest runs Go test binaries in a guest: it translates their flags,
// finds the packages that have tests for the guest, and reads their results.
//
// Change it to pass another flag of go test, or to read another line of a test's output.
package gotest
