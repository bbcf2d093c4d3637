// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

// #include <stdlib.h>
import "C"

import "unsafe"

// noScatterToCQE keeps mlx5's provider from delivering short receives and READ
// responses inside the completion, which the CPU then copies to where they
// belong while it polls: the CPU cannot write to device memory by the address
// in the SGE. The provider reads the variable when it makes queue pairs
// (mlx5(7): MLX5_SCATTER_TO_CQE). The environment's value gives way: any queue
// pair may come to receive into device memory. It is set for C only, so that
// programs that this one starts do not inherit it.
func noScatterToCQE() {
	name, value := C.CString("MLX5_SCATTER_TO_CQE"), C.CString("0")
	C.setenv(name, value, 1)
	C.free(unsafe.Pointer(name))
	C.free(unsafe.Pointer(value))
}
