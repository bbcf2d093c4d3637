// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/gpurdma/gpurdma/p2p/result"

const (
	program = "p2pcheck"
	schema  = result.Schema
)

// version and revision are set by the build.
var version, revision = "unknown", "unknown"
