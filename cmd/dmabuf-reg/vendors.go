// SPDX-License-Identifier: Apache-2.0

package main

// The vendors' runtimes register themselves; their libraries are loaded when
// a device of theirs is asked for or listed.
import (
	_ "github.com/gpurdma/gpurdma/gpualloc/cuda"
	_ "github.com/gpurdma/gpurdma/gpualloc/levelzero"
	_ "github.com/gpurdma/gpurdma/gpualloc/rocm"
)
