// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

// #include "verbs_lib.h"
import "C"

import "unsafe"

func (p *libPD) createAH(path *pathAttr) (verbsAH, error) {
	a := pathTo(path)
	h := &libAH{lib: p.ctx.lib}
	if err := result(C.vb_create_ah(p.ctx.lib.c, p.c, &a, &h.c)); err != nil {
		return nil, err
	}
	return h, nil
}

func (p *libPD) replyAH(wc *WC, grh []byte, port int) (verbsAH, error) {
	c := C.struct_vb_wc{
		byte_len: C.uint32_t(wc.ByteLen), qp_num: C.uint32_t(wc.QPN), src_qp: C.uint32_t(wc.SrcQP),
		wc_flags: C.uint(wc.Flags), pkey_index: C.uint16_t(wc.PKeyIndex), slid: C.uint16_t(wc.SLID),
		sl: C.uint8_t(wc.SL), dlid_path_bits: C.uint8_t(wc.PathBits),
	}
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

func (h *libAH) identity() uintptr { return uintptr(unsafe.Pointer(h.c)) }

func (h *libAH) destroy() error { return result(C.vb_destroy_ah(h.lib.c, h.c)) }
