// SPDX-License-Identifier: Apache-2.0

package main

// The vendors' runtimes register their allocators, for --live. Their libraries
// are loaded when used.
import (
	_ "github.com/gpurdma/gpurdma/gpualloc/cuda"
	_ "github.com/gpurdma/gpurdma/gpualloc/levelzero"
	_ "github.com/gpurdma/gpurdma/gpualloc/rocm"
)
