// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

// #include "verbs_lib.h"
import "C"

import "unsafe"

func (p *libPD) CreateAH(path *Path) (AH, error) {
	a := pathTo(path)
	h := &libAH{lib: p.ctx.lib}
	if err := result(C.vb_create_ah(p.ctx.lib.c, p.c, &a, &h.c)); err != nil {
		return nil, err
	}
	return h, nil
}

func (p *libPD) ReplyAH(wc *WC, grh []byte, port int) (AH, error) {
	c := *(*C.struct_vb_wc)(unsafe.Pointer(wc))
	var g C.struct_vb_grh
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&g)), C.sizeof_struct_vb_grh), grh)
	h := &libAH{lib: p.ctx.lib}
	if err := result(C.vb_create_ah_from_wc(p.ctx.lib.c, p.c, &c, &g, C.uint8_t(port), &h.c)); err != nil {
		return nil, err
	}
	return h, nil
}

type libAH struct {
	lib *libibverbs
	c   *C.struct_vb_ah
}

func (h *libAH) Identity() uintptr { return uintptr(unsafe.Pointer(h.c)) }

func (h *libAH) Destroy() error { return result(C.vb_destroy_ah(h.lib.c, h.c)) }
