// SPDX-License-Identifier: Apache-2.0

package main

const (
	program = "p2pcheck"
	schema  = "p2pcheck/v2"

	// schemaV1 is what earlier versions wrote: their outcomes had no "lost" and no "broken", and
	// their pairs no links. A saved run of theirs is still read.
	schemaV1 = "p2pcheck/v1"
)

// version is set by the build.
var version = "unknown"
