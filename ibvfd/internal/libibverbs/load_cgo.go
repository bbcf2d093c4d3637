// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

/*
#include <stdlib.h>
#include "verbs_lib.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/dl"
)

// soname is the library that every rdma-core since 2006 installs.
const soname = "libibverbs.so.1"

// libibverbs is verbs through the library, which stays loaded.
type libibverbs struct {
	c    *C.struct_vb_lib // C memory
	path string
}

var loaded dl.Once[Library]

// Load loads the library, once.
func Load() (Library, error) { return loaded.Get(loadLibrary) }

func loadLibrary() (Library, error) {
	noScatterToCQE()
	return loadFrom(soname)
}

// loadFrom loads a library by its name, or by its path.
func loadFrom(name string) (*libibverbs, error) {
	lib, err := dl.Open(name)
	if err != nil {
		return nil, notLoaded(err)
	}
	c := (*C.struct_vb_lib)(C.calloc(1, C.sizeof_struct_vb_lib))
	if c == nil {
		return nil, &failure.Error{Op: "load", Device: soname, Err: unix.ENOMEM}
	}
	for _, s := range symbols(c) {
		addr, err := lib.Sym(s.name, s.version)
		if err != nil && !s.optional {
			C.free(unsafe.Pointer(c))
			return nil, &failure.Error{
				Op: "load", Device: soname, Detail: fmt.Sprintf("it has no %s@%s", s.name, s.version), Err: err,
				Remedy: "install libibverbs of rdma-core 16 or newer",
			}
		}
		*s.slot = addr
	}
	return &libibverbs{c: c, path: dl.PathOf(*slot(&c.get_device_list))}, nil
}

// notLoaded tells a library that is not installed from one that does not load.
func notLoaded(err error) error {
	e := &failure.Error{
		Op: "load", Device: soname, Err: ErrNoLibrary,
		Remedy: "install it (Debian: apt-get install libibverbs1 ibverbs-providers)",
	}
	var why *dl.Error
	if errors.As(err, &why) && !errors.Is(err, fs.ErrNotExist) {
		e.Detail, e.Err, e.Remedy = why.Reason, ErrBrokenLibrary, why.Remedy()
	}
	return e
}

type symbol struct {
	name, version string
	slot          *unsafe.Pointer
	optional      bool
}

// slot is where a function's address goes.
func slot[F any](field *F) *unsafe.Pointer { return (*unsafe.Pointer)(unsafe.Pointer(field)) }

// symbols lists what is looked up, with versions as in rdma-core's
// libibverbs.map. The 1.0 versions of the same names have other structures.
func symbols(c *C.struct_vb_lib) []symbol {
	return []symbol{
		{"ibv_get_device_list", "IBVERBS_1.1", slot(&c.get_device_list), false},
		{"ibv_free_device_list", "IBVERBS_1.1", slot(&c.free_device_list), false},
		{"ibv_get_device_name", "IBVERBS_1.1", slot(&c.get_device_name), false},
		{"ibv_open_device", "IBVERBS_1.1", slot(&c.open_device), false},
		{"ibv_close_device", "IBVERBS_1.1", slot(&c.close_device), false},
		{"ibv_query_device", "IBVERBS_1.1", slot(&c.query_device), false},
		{"ibv_query_port", "IBVERBS_1.1", slot(&c.query_port), false},
		{"ibv_alloc_pd", "IBVERBS_1.1", slot(&c.alloc_pd), false},
		{"ibv_dealloc_pd", "IBVERBS_1.1", slot(&c.dealloc_pd), false},
		{"ibv_reg_mr", "IBVERBS_1.1", slot(&c.reg_mr), false},
		{"ibv_rereg_mr", "IBVERBS_1.1", slot(&c.rereg_mr), false},
		{"ibv_dereg_mr", "IBVERBS_1.1", slot(&c.dereg_mr), false},
		{"ibv_create_cq", "IBVERBS_1.1", slot(&c.create_cq), false},
		{"ibv_destroy_cq", "IBVERBS_1.1", slot(&c.destroy_cq), false},
		{"ibv_create_qp", "IBVERBS_1.1", slot(&c.create_qp), false},
		{"ibv_modify_qp", "IBVERBS_1.1", slot(&c.modify_qp), false},
		{"ibv_query_qp", "IBVERBS_1.1", slot(&c.query_qp), false},
		{"ibv_destroy_qp", "IBVERBS_1.1", slot(&c.destroy_qp), false},
		{"ibv_create_comp_channel", "IBVERBS_1.0", slot(&c.create_comp_channel), false},
		{"ibv_destroy_comp_channel", "IBVERBS_1.0", slot(&c.destroy_comp_channel), false},
		{"ibv_get_cq_event", "IBVERBS_1.1", slot(&c.get_cq_event), false},
		{"ibv_ack_cq_events", "IBVERBS_1.1", slot(&c.ack_cq_events), false},
		{"ibv_get_async_event", "IBVERBS_1.1", slot(&c.get_async_event), false},
		{"ibv_ack_async_event", "IBVERBS_1.1", slot(&c.ack_async_event), false},
		{"ibv_create_srq", "IBVERBS_1.1", slot(&c.create_srq), false},
		{"ibv_modify_srq", "IBVERBS_1.1", slot(&c.modify_srq), false},
		{"ibv_query_srq", "IBVERBS_1.1", slot(&c.query_srq), false},
		{"ibv_destroy_srq", "IBVERBS_1.1", slot(&c.destroy_srq), false},
		{"ibv_create_ah", "IBVERBS_1.1", slot(&c.create_ah), false},
		{"ibv_create_ah_from_wc", "IBVERBS_1.1", slot(&c.create_ah_from_wc), false},
		{"ibv_destroy_ah", "IBVERBS_1.1", slot(&c.destroy_ah), false},
		{"ibv_qp_to_qp_ex", "IBVERBS_1.6", slot(&c.qp_to_qp_ex), true},
		{"ibv_reg_mr_iova2", "IBVERBS_1.8", slot(&c.reg_mr_iova2), true},
		{"_ibv_query_gid_table", "IBVERBS_1.11", slot(&c.query_gid_table), true},
		{"ibv_reg_dmabuf_mr", "IBVERBS_1.12", slot(&c.reg_dmabuf_mr), true},
		{"ibv_reg_mr_ex", "IBVERBS_1.15", slot(&c.reg_mr_ex), true},
		{"ibv_alloc_buf", "IBVERBS_1.17", slot(&c.alloc_buf), true},
		{"ibv_free_buf", "IBVERBS_1.17", slot(&c.free_buf), true},
		{"ibv_reg_buf_mr", "IBVERBS_1.17", slot(&c.reg_buf_mr), true},
	}
}

// Version reads the version from the file's name: in libibverbs.so.1.14.44.0 the
// third number is rdma-core's.
func (l *libibverbs) Version() string {
	if _, v, ok := strings.Cut(filepath.Base(l.path), ".so."); ok {
		return fmt.Sprintf("libibverbs %s (%s)", v, l.path)
	}
	return "libibverbs (" + l.path + ")"
}

// result turns a vb_ function's answer into an error.
func result(rc C.int) error {
	if rc == 0 {
		return nil
	}
	return unix.Errno(rc)
}

func (l *libibverbs) Open(name string) (Context, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var ctx *C.struct_vb_context
	if err := result(C.vb_open(l.c, c, &ctx)); err != nil {
		if errors.Is(err, unix.ENODEV) {
			return nil, fmt.Errorf("%w: %w", ibdev.ErrNoDevice, err)
		}
		return nil, err
	}
	return &libContext{l, ctx}, nil
}

// Borrow is a device that other code has opened through this process's library:
// verbs is its struct ibv_context. It is not to be closed.
func Borrow(verbs unsafe.Pointer) (c Context, name string, err error) {
	v, err := Load()
	if err != nil {
		return nil, "", err
	}
	lib := v.(*libibverbs) // Load makes no other
	ctx := (*C.struct_vb_context)(verbs)
	return &libContext{lib, ctx}, C.GoString(C.vb_context_name(lib.c, ctx)), nil
}
