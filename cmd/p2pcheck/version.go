// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/gpurdma/gpurdma/p2p/result"

const (
	program = "p2pcheck"
	schema  = result.Schema
)

// version is set by the build.
var version = "unknown"
