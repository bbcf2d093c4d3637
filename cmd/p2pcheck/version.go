// SPDX-License-Identifier: Apache-2.0

package main

const (
	program = "p2pcheck"
	schema  = "p2pcheck/v1"
)

// version is set by the build.
var version = "unknown"
