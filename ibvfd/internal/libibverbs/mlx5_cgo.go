// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

/*
#include <stdlib.h>
#include "verbs_lib.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/dl"
)

// mlx5Name is the provider's library, which libibverbs loads for such devices by itself.
const mlx5Name = "libmlx5.so.1"

var mlx5 dl.Once[*C.struct_vb_mlx5]

// loadMLX5 loads the library of that name. A function that it lacks is NULL.
func loadMLX5(name string) (*C.struct_vb_mlx5, error) {
	lib, err := dl.Open(name)
	if err != nil {
		return nil, err
	}
	c := (*C.struct_vb_mlx5)(C.calloc(1, C.sizeof_struct_vb_mlx5))
	if c == nil {
		return nil, unix.ENOMEM
	}
	for _, s := range []symbol{
		{"mlx5dv_reg_dmabuf_mr", "MLX5_1.25", slot(&c.reg_dmabuf_mr), true},
		{"mlx5dv_get_data_direct_sysfs_path", "MLX5_1.25", slot(&c.data_direct_path), true},
	} {
		*s.slot, _ = lib.Sym(s.name, s.version)
	}
	return c, nil
}

// ofMLX5 returns the loaded library. The error wraps ENOSYS, the answer of a missing function.
func (c *libContext) ofMLX5() (*C.struct_vb_mlx5, error) {
	m, err := mlx5.Get(func() (*C.struct_vb_mlx5, error) { return loadMLX5(mlx5Name) })
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, unix.ENOSYS)
	}
	return m, nil
}

func (c *libContext) DataDirect() (string, error) {
	m, err := c.ofMLX5()
	if err != nil {
		return "", err
	}
	buf := (*C.char)(C.calloc(1, unix.PathMax))
	if buf == nil {
		return "", unix.ENOMEM
	}
	defer C.free(unsafe.Pointer(buf))
	if err := result(C.vb_data_direct_path(m, c.c, buf, unix.PathMax)); err != nil {
		return "", err
	}
	return C.GoString(buf), nil
}

func (p *libPD) RegDataDirect(offset, length, iova uint64, fd int, access uint32) (MR, error) {
	m, err := p.ctx.ofMLX5()
	if err != nil {
		return nil, err
	}
	var mr *C.struct_vb_mr
	if err := result(C.vb_reg_data_direct(m, p.c, C.uint64_t(offset), C.uint64_t(length), C.uint64_t(iova), C.int(fd), C.uint32_t(access), &mr)); err != nil {
		return nil, err
	}
	return &libMR{p.ctx.lib, mr, callRegDataDirect}, nil
}
