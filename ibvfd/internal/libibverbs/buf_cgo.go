// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

/*
#include <stdlib.h>
#include "verbs_lib.h"
*/
import "C"

import "unsafe"

// libBuf is memory of ibv_alloc_buf.
type libBuf struct {
	lib *libibverbs
	c   *C.struct_vb_buf
	mem []byte
}

func (p *libPD) AllocBuf(size int) (Buf, error) {
	var mem unsafe.Pointer
	var buf *C.struct_vb_buf
	if err := result(C.vb_alloc_buf(p.ctx.lib.c, p.c, C.size_t(size), &mem, &buf)); err != nil {
		return nil, err
	}
	return &libBuf{p.ctx.lib, buf, unsafe.Slice((*byte)(mem), size)}, nil
}

func (b *libBuf) Bytes() []byte { return b.mem }

func (b *libBuf) Free() { C.vb_free_buf(b.lib.c, b.c) }

func (p *libPD) RegBuf(b Buf, addr, length uint64, access uint32) (MR, error) {
	var mr *C.struct_vb_mr
	if err := result(C.vb_reg_buf_mr(p.ctx.lib.c, p.c, b.(*libBuf).c, C.uint64_t(addr), C.uint64_t(length), C.uint32_t(access), &mr)); err != nil {
		return nil, err
	}
	return &libMR{p.ctx.lib, mr, callRegBuf}, nil
}
