// SPDX-License-Identifier: Apache-2.0

package rocm

// #include <stdlib.h>
// #include "calls_hsa.h"
import "C"

import (
	"unsafe"

	"github.com/gpurdma/gpurdma/gpualloc/internal/runtimelib"
)

// cdriver is the driver of a loaded libhsa-runtime64. The table lies in C
// memory and, like the library, is never given back.
type cdriver struct {
	lib *runtimelib.Library
	api *C.struct_gpurdma_hsa
}

// symbols lists what is looked up, all in version ROCR_1.
var symbols = []struct {
	name     string
	at       func(*C.struct_gpurdma_hsa) unsafe.Pointer
	optional bool
}{
	{"hsa_init", func(a *C.struct_gpurdma_hsa) unsafe.Pointer { return unsafe.Pointer(&a.hsa_init) }, false},
	{"hsa_iterate_agents", func(a *C.struct_gpurdma_hsa) unsafe.Pointer { return unsafe.Pointer(&a.hsa_iterate_agents) }, false},
	{"hsa_agent_get_info", func(a *C.struct_gpurdma_hsa) unsafe.Pointer { return unsafe.Pointer(&a.hsa_agent_get_info) }, false},
	{"hsa_memory_copy", func(a *C.struct_gpurdma_hsa) unsafe.Pointer { return unsafe.Pointer(&a.hsa_memory_copy) }, false},
	{"hsa_amd_agent_iterate_memory_pools", func(a *C.struct_gpurdma_hsa) unsafe.Pointer {
		return unsafe.Pointer(&a.hsa_amd_agent_iterate_memory_pools)
	}, false},
	{"hsa_amd_memory_pool_get_info", func(a *C.struct_gpurdma_hsa) unsafe.Pointer { return unsafe.Pointer(&a.hsa_amd_memory_pool_get_info) }, false},
	{"hsa_amd_memory_pool_allocate", func(a *C.struct_gpurdma_hsa) unsafe.Pointer { return unsafe.Pointer(&a.hsa_amd_memory_pool_allocate) }, false},
	{"hsa_amd_memory_pool_free", func(a *C.struct_gpurdma_hsa) unsafe.Pointer { return unsafe.Pointer(&a.hsa_amd_memory_pool_free) }, false},
	{"hsa_amd_memory_fill", func(a *C.struct_gpurdma_hsa) unsafe.Pointer { return unsafe.Pointer(&a.hsa_amd_memory_fill) }, false},
	{"hsa_amd_pointer_info", func(a *C.struct_gpurdma_hsa) unsafe.Pointer { return unsafe.Pointer(&a.hsa_amd_pointer_info) }, false},
	{exportFunction, func(a *C.struct_gpurdma_hsa) unsafe.Pointer { return unsafe.Pointer(&a.hsa_amd_portable_export_dmabuf) }, false},
	{"hsa_amd_portable_close_dmabuf", func(a *C.struct_gpurdma_hsa) unsafe.Pointer { return unsafe.Pointer(&a.hsa_amd_portable_close_dmabuf) }, false},
	{exportFunction + "_v2", func(a *C.struct_gpurdma_hsa) unsafe.Pointer {
		return unsafe.Pointer(&a.hsa_amd_portable_export_dmabuf_v2)
	}, true},
}

// load finds the library and its functions.
func load() (driver, error) {
	lib, err := runtimelib.Open(library)
	if err != nil {
		return nil, err
	}
	api := (*C.struct_gpurdma_hsa)(C.calloc(1, C.sizeof_struct_gpurdma_hsa))
	for _, s := range symbols {
		f := lib.Symbol(s.name)
		if f == nil && !s.optional {
			C.free(unsafe.Pointer(api))
			return nil, lib.TooOld(s.name, "install ROCm 5.6 or later, whose runtime exports dma-bufs")
		}
		*(*unsafe.Pointer)(s.at(api)) = f
	}
	return &cdriver{lib: lib, api: api}, nil
}

func (d *cdriver) path() string   { return d.lib.Path() }
func (d *cdriver) hasFlags() bool { return d.api.hsa_amd_portable_export_dmabuf_v2 != nil }
func (d *cdriver) init() Status   { return Status(C.gpurdma_hsa_init(d.api)) }

// handles copies a list out; more than fit is OutOfResources.
func handles[T ~uint64](l *C.struct_gpurdma_hsa_list, s C.int) ([]T, Status) {
	if s != 0 && s != C.GPURDMA_HSA_STATUS_INFO_BREAK {
		return nil, Status(s)
	}
	if l.n > C.GPURDMA_HSA_MAX {
		return nil, OutOfResources
	}
	var out []T
	for _, h := range l.handle[:l.n] {
		out = append(out, T(h))
	}
	return out, Success
}

func (d *cdriver) agents() ([]agent, Status) {
	l := (*C.struct_gpurdma_hsa_list)(C.calloc(1, C.sizeof_struct_gpurdma_hsa_list))
	defer C.free(unsafe.Pointer(l))
	return handles[agent](l, C.gpurdma_hsa_agents(d.api, l))
}

func (d *cdriver) pools(a agent) ([]pool, Status) {
	l := (*C.struct_gpurdma_hsa_list)(C.calloc(1, C.sizeof_struct_gpurdma_hsa_list))
	defer C.free(unsafe.Pointer(l))
	return handles[pool](l, C.gpurdma_hsa_pools(d.api, C.uint64_t(a), l))
}

// agentUint reads an attribute of up to 8 bytes; the machine is little-endian.
func (d *cdriver) agentUint(a agent, attr int) (uint64, Status) {
	var v C.uint64_t
	s := C.gpurdma_hsa_agent_info(d.api, C.uint64_t(a), C.int(attr), unsafe.Pointer(&v))
	return uint64(v), Status(s)
}

// agentString reads an attribute of at most length bytes with its zero.
func (d *cdriver) agentString(a agent, attr, length int) (string, Status) {
	buf := (*C.char)(C.calloc(1, C.size_t(length)+1))
	defer C.free(unsafe.Pointer(buf))
	s := C.gpurdma_hsa_agent_info(d.api, C.uint64_t(a), C.int(attr), unsafe.Pointer(buf))
	return C.GoString(buf), Status(s)
}

func (d *cdriver) poolUint(p pool, attr int) (uint64, Status) {
	var v C.uint64_t
	s := C.gpurdma_hsa_pool_info(d.api, C.uint64_t(p), C.int(attr), unsafe.Pointer(&v))
	return uint64(v), Status(s)
}

func (d *cdriver) alloc(p pool, size uint64) (pointer, Status) {
	var at C.uintptr_t
	s := C.gpurdma_hsa_alloc(d.api, C.uint64_t(p), C.size_t(size), &at)
	return pointer(at), Status(s)
}

func (d *cdriver) free(p pointer) Status {
	return Status(C.gpurdma_hsa_free(d.api, C.uintptr_t(p)))
}

func (d *cdriver) fill(p pointer, value uint32, words uint64) Status {
	return Status(C.gpurdma_hsa_fill(d.api, C.uintptr_t(p), C.uint32_t(value), C.size_t(words)))
}

func (d *cdriver) toHost(to []byte, from pointer) Status {
	return Status(C.gpurdma_hsa_to_host(d.api, unsafe.Pointer(unsafe.SliceData(to)), C.uintptr_t(from), C.size_t(len(to))))
}

func (d *cdriver) toDevice(to pointer, from []byte) Status {
	return Status(C.gpurdma_hsa_to_device(d.api, C.uintptr_t(to), unsafe.Pointer(unsafe.SliceData(from)), C.size_t(len(from))))
}

func (d *cdriver) pointerInfo(p pointer) (pointerInfo, Status) {
	info := (*C.gpurdma_hsa_pointer_info)(C.calloc(1, C.sizeof_gpurdma_hsa_pointer_info))
	defer C.free(unsafe.Pointer(info))
	s := C.gpurdma_hsa_pointer_facts(d.api, C.uintptr_t(p), info)
	return pointerInfo{
		kind: int(info._type), base: pointer(uintptr(info.agentBaseAddress)),
		size: uint64(info.sizeInBytes), owner: agent(info.agentOwner.handle),
	}, Status(s)
}

func (d *cdriver) export(p pointer, size, flags uint64) (fd int, offset uint64, s Status) {
	n := C.int(-1)
	var at C.uint64_t
	st := C.gpurdma_hsa_export(d.api, C.uintptr_t(p), C.size_t(size), &n, &at, C.uint64_t(flags))
	return int(n), uint64(at), Status(st)
}

func (d *cdriver) closeDMABuf(fd int) Status {
	return Status(C.gpurdma_hsa_close(d.api, C.int(fd)))
}
