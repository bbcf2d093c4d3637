// SPDX-License-Identifier: Apache-2.0

// Package suite keeps the results of tests that ran in a guest, checks them
// against the list of those that must run, and reads shell tests.
//
// To give results another state, change suite.go.
package suite
