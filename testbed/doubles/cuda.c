// SPDX-License-Identifier: Apache-2.0
/*
 * libcuda.so.1, as far as gpualloc/cuda uses it. The declarations are written
 * from the CUDA driver API reference; there is no cuda.h to compile against.
 *
 * OLD lacks what came with CUDA 11.4 and 11.7, ANCIENT also 11.3's flush and any _v2.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

typedef int CUresult;
typedef int CUdevice;
typedef struct context *CUcontext;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUhandle;

enum {
	OK = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	CONTEXT_IS_DESTROYED = 709,
	OPERATING_SYSTEM = 304,
	NOT_FOUND = 500,
	NOT_SUPPORTED = 801,
};

#define GRANULARITY ((size_t)2 << 20)
#define API __attribute__((visibility("default")))

/* Allocation flags of an area. */
#define MANAGED 1u
#define NO_RDMA 2u
#define MAPPED 4u
#define ACCESSIBLE 8u

/* A destroyed one stays allocated, so that cuCtxPushCurrent() knows it. */
struct context {
	int device;
	int retained;
	bool destroyed;
};

static struct context primary[16];
static bool initialised;
static __thread CUcontext stack[32];
static __thread int depth;

/* Every function begins with this: counts and logs the call, and may make it fail. */
#define ENTER(...)                                                        \
	do {                                                              \
		int forced;                                               \
		core_lock();                                              \
		forced = core_call(__func__, __VA_ARGS__);                \
		if (forced || !initialised) {                             \
			core_unlock();                                    \
			return forced ? forced : NOT_INITIALIZED;         \
		}                                                         \
	} while (0)

#define LEAVE(result)                     \
	do {                              \
		CUresult value = (result); \
		core_unlock();            \
		return value;             \
	} while (0)

static CUcontext current(void) { return depth ? stack[depth - 1] : NULL; }

API CUresult cuInit(unsigned int flags)
{
	int forced;

	core_lock();
	forced = core_call(__func__, "%u", flags);
	if (!forced && core_devices() == 0)
		forced = NO_DEVICE;
	if (!forced)
		initialised = true;
	core_unlock();
	return forced;
}

API CUresult cuDriverGetVersion(int *version)
{
	*version = (int)core_knob("DOUBLE_CUDA_VERSION", 12080);
	return OK;
}

API CUresult cuDeviceGetCount(int *n)
{
	ENTER("%s", "");
	*n = core_devices();
	LEAVE(OK);
}

static bool is_device(CUdevice d) { return d >= 0 && d < core_devices(); }

API CUresult cuDeviceGet(CUdevice *d, int ordinal)
{
	ENTER("%d", ordinal);
	*d = ordinal;
	LEAVE(is_device(ordinal) ? OK : INVALID_DEVICE);
}

API CUresult cuDeviceGetName(char *name, int len, CUdevice d)
{
	ENTER("%d", d);
	snprintf(name, (size_t)len, "CUDA Double %d", d);
	LEAVE(is_device(d) ? OK : INVALID_DEVICE);
}

API CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice d)
{
	ENTER("%d", d);
	core_pci(d, id, (size_t)len);
	LEAVE(is_device(d) ? OK : INVALID_DEVICE);
}

API CUresult cuDeviceGetAttribute(int *v, int attr, CUdevice d)
{
	ENTER("%d %d", attr, d);
	if (!is_device(d))
		LEAVE(INVALID_DEVICE);
	switch (attr) {
	case 18: /* INTEGRATED */
		*v = 0;
		break;
	case 75: /* COMPUTE_CAPABILITY_MAJOR */
		*v = (int)core_knob("DOUBLE_CUDA_COMPUTE", 90) / 10;
		break;
	case 76: /* COMPUTE_CAPABILITY_MINOR */
		*v = (int)core_knob("DOUBLE_CUDA_COMPUTE", 90) % 10;
		break;
	case 102: /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
		*v = 1;
		break;
	case 110: /* GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED */
		*v = (int)core_knob("DOUBLE_CUDA_VMM_RDMA", 1);
		break;
	case 116: /* GPU_DIRECT_RDMA_SUPPORTED */
		*v = (int)core_knob("DOUBLE_CUDA_RDMA", 1);
		break;
#ifndef ANCIENT
	case 117: /* GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS */
		*v = (int)core_knob("DOUBLE_CUDA_FLUSH", 1);
		break;
	case 118: /* GPU_DIRECT_RDMA_WRITES_ORDERING */
		*v = (int)core_knob("DOUBLE_CUDA_ORDERING", 0);
		break;
#endif
#ifndef OLD
	case 124: /* DMA_BUF_SUPPORTED */
		*v = (int)core_knob("DOUBLE_CUDA_DMABUF", 1);
		break;
#endif
	default:
		LEAVE(INVALID_VALUE);
	}
	LEAVE(OK);
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
	ENTER("%d", d);
	if (!is_device(d))
		LEAVE(INVALID_DEVICE);
	primary[d].device = d;
	primary[d].retained++;
	*c = &primary[d];
	LEAVE(OK);
}

#ifdef ANCIENT
#define V2(name) name
#else
#define V2(name) name##_v2
#endif

/* The GPU's UUID, even for a MIG instance. */
API CUresult cuDeviceGetUuid(unsigned char *id, CUdevice d)
{
	ENTER("%d", d);
	core_uuid(d, id);
	LEAVE(is_device(d) ? OK : INVALID_DEVICE);
}

#ifndef OLD
API CUresult cuDeviceGetUuid_v2(unsigned char *id, CUdevice d)
{
	ENTER("%d", d);
	core_uuid(d, id);
	if (core_knob("DOUBLE_CUDA_MIG", 0))
		id[15] ^= 0xff;
	LEAVE(is_device(d) ? OK : INVALID_DEVICE);
}
#endif

API CUresult V2(cuDeviceTotalMem)(size_t *n, CUdevice d)
{
	ENTER("%d", d);
	*n = core_total();
	LEAVE(is_device(d) ? OK : INVALID_DEVICE);
}

API CUresult V2(cuDevicePrimaryCtxRelease)(CUdevice d)
{
	ENTER("%d", d);
	if (!is_device(d) || !primary[d].retained)
		LEAVE(INVALID_CONTEXT);
	primary[d].retained--;
	LEAVE(OK);
}

API CUresult V2(cuCtxPushCurrent)(CUcontext c)
{
	ENTER("%d", c ? c->device : -1);
	if (c && c->destroyed)
		LEAVE(CONTEXT_IS_DESTROYED);
	if (!c || !c->retained || depth == 32)
		LEAVE(INVALID_CONTEXT);
	stack[depth++] = c;
	LEAVE(OK);
}

/* The new context becomes the thread's current one. */
API CUresult V2(cuCtxCreate)(CUcontext *c, unsigned int flags, CUdevice d)
{
	struct context *made;

	ENTER("%u %d", flags, d);
	if (!is_device(d))
		LEAVE(INVALID_DEVICE);
	made = depth < 32 ? calloc(1, sizeof(*made)) : NULL;
	if (!made)
		LEAVE(OUT_OF_MEMORY);
	made->device = d;
	made->retained = 1;
	*c = stack[depth++] = made;
	LEAVE(OK);
}

/* Frees the context's memory, too. */
API CUresult V2(cuCtxDestroy)(CUcontext c)
{
	struct area *a;

	ENTER("%d", c ? c->device : -1);
	if (!c || c->destroyed || (c >= primary && c < primary + 16))
		LEAVE(INVALID_CONTEXT);
	while ((a = core_owned(c)))
		core_remove(a);
	if (depth && stack[depth - 1] == c)
		depth--;
	c->destroyed = true;
	LEAVE(OK);
}

API CUresult V2(cuCtxPopCurrent)(CUcontext *c)
{
	ENTER("%s", "");
	if (!depth)
		LEAVE(INVALID_CONTEXT);
	*c = stack[--depth];
	LEAVE(OK);
}

API CUresult cuCtxSynchronize(void)
{
	ENTER("%s", "");
	LEAVE(current() ? OK : INVALID_CONTEXT);
}

#define NEED_CONTEXT()                          \
	do {                                    \
		if (!current())                 \
			LEAVE(INVALID_CONTEXT); \
	} while (0)

/*
 * Memory of another context than the thread's. Copies, memset and
 * cuPointerGetAttribute() go by the address and take it. All other functions refuse
 * it, which may be stricter than the real library.
 */
static bool foreign(const struct area *a) { return a->owner && a->owner != current(); }

API CUresult V2(cuMemGetInfo)(size_t *avail, size_t *total)
{
	ENTER("%s", "");
	NEED_CONTEXT();
	*avail = core_free_bytes(current()->device);
	*total = core_total();
	LEAVE(OK);
}

API CUresult V2(cuMemAlloc)(CUdeviceptr *p, size_t n)
{
	struct area *a;

	ENTER("%zu", n);
	NEED_CONTEXT();
	if (!n)
		LEAVE(INVALID_VALUE);
	a = core_alloc(n, current()->device, core_parts());
	if (!a)
		LEAVE(OUT_OF_MEMORY);
	a->owner = current();
	a->flags = ACCESSIBLE;
	if (core_knob("DOUBLE_CUDA_MANAGED", 0))
		a->flags |= MANAGED;
	*p = a->addr;
	LEAVE(OK);
}

API CUresult V2(cuMemFree)(CUdeviceptr p)
{
	struct area *a;

	ENTER("%#llx", p);
	NEED_CONTEXT();
	a = core_find(p);
	if (!a || a->addr != p || a->flags & MAPPED)
		LEAVE(INVALID_VALUE);
	if (foreign(a))
		LEAVE(INVALID_CONTEXT);
	core_remove(a);
	LEAVE(OK);
}

API CUresult V2(cuMemGetAddressRange)(CUdeviceptr *base, size_t *n, CUdeviceptr p)
{
	struct area *a;

	ENTER("%#llx", p);
	NEED_CONTEXT();
	a = core_find(p);
	if (!a)
		LEAVE(NOT_FOUND);
	if (foreign(a))
		LEAVE(INVALID_CONTEXT);
	*base = a->addr;
	*n = a->size;
	LEAVE(OK);
}

API CUresult cuPointerGetAttribute(void *v, int attr, CUdeviceptr p)
{
	struct area *a;

	ENTER("%d %#llx", attr, p);
	a = core_find(p);
	if (!a)
		LEAVE(INVALID_VALUE);
	switch (attr) {
	case 1: /* CONTEXT */
		*(CUcontext *)v = a->owner;
		break;
	case 2: /* MEMORY_TYPE: CU_MEMORYTYPE_DEVICE */
		*(unsigned int *)v = (unsigned int)core_knob("DOUBLE_CUDA_MEMORYTYPE", 2);
		break;
	case 7: /* BUFFER_ID */
		*(unsigned long long *)v = a->id;
		break;
	case 8: /* IS_MANAGED */
		*(unsigned int *)v = !!(a->flags & MANAGED);
		break;
	case 9: /* DEVICE_ORDINAL */
		*(int *)v = a->device;
		break;
	case 15: /* IS_GPU_DIRECT_RDMA_CAPABLE */
		*(unsigned int *)v = !(a->flags & NO_RDMA);
		break;
	default:
		LEAVE(INVALID_VALUE);
	}
	LEAVE(OK);
}

API CUresult cuPointerSetAttribute(const void *v, int attr, CUdeviceptr p)
{
	struct area *a;

	ENTER("%d %#llx", attr, p);
	NEED_CONTEXT();
	a = core_find(p);
	if (!a || attr != 6 /* SYNC_MEMOPS */ || !*(const unsigned int *)v)
		LEAVE(INVALID_VALUE);
	if (foreign(a))
		LEAVE(INVALID_CONTEXT);
	LEAVE(a->flags & MAPPED ? NOT_SUPPORTED : OK);
}

/* Whether all of the range is allocated, or mapped with access. */
static bool accessible(CUdeviceptr p, size_t n)
{
	while (n) {
		struct area *a = core_find(p);
		size_t part;

		if (!a || !(a->flags & ACCESSIBLE))
			return false;
		part = a->size - (size_t)(p - a->addr);
		part = part < n ? part : n;
		p += part;
		n -= part;
	}
	return true;
}

API CUresult V2(cuMemsetD8)(CUdeviceptr p, unsigned char v, size_t n)
{
	ENTER("%#llx %zu", p, n);
	NEED_CONTEXT();
	LEAVE(accessible(p, n) && core_fill(p, v, n) ? OK : INVALID_VALUE);
}

API CUresult V2(cuMemcpyDtoH)(void *to, CUdeviceptr p, size_t n)
{
	ENTER("%#llx %zu", p, n);
	NEED_CONTEXT();
	LEAVE(accessible(p, n) && core_read(to, p, n) ? OK : INVALID_VALUE);
}

API CUresult V2(cuMemcpyHtoD)(CUdeviceptr p, const void *from, size_t n)
{
	ENTER("%#llx %zu", p, n);
	NEED_CONTEXT();
	LEAVE(accessible(p, n) && core_write(p, from, n) ? OK : INVALID_VALUE);
}

#ifndef ANCIENT
API CUresult cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	ENTER("%d %d", target, scope);
	NEED_CONTEXT();
	if (target != 0 /* CURRENT_CTX */ || (scope != 100 /* TO_OWNER */ && scope != 200 /* TO_ALL_DEVICES */))
		LEAVE(INVALID_VALUE);
	LEAVE(core_knob("DOUBLE_CUDA_FLUSH", 1) & 1 /* OPTION_HOST */ ? OK : NOT_SUPPORTED);
}
#endif

#ifndef OLD
static CUresult result(int fd)
{
	switch (-fd) {
	case EINVAL:
		return INVALID_VALUE;
	case ENOMEM:
		return OUT_OF_MEMORY;
	case EMFILE:
	case ENFILE:
		return OPERATING_SYSTEM;
	}
	return NOT_SUPPORTED;
}

/*
 * The reference demands that all memory of a range is on one device and allocated
 * in the same way. The export itself refuses a range with holes.
 */
static CUresult alike(CUdeviceptr p, size_t n)
{
	struct area *first = core_behind(p);

	for (struct area *a = first; a && a->addr <= p + (n - 1); a = a->next) {
		if (a->flags & (MANAGED | NO_RDMA))
			return NOT_SUPPORTED;
		if (foreign(a))
			return INVALID_CONTEXT;
		if (a->device != first->device || (a->flags ^ first->flags) & MAPPED)
			return INVALID_VALUE;
	}
	return OK;
}

API CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr p, size_t n, int type, unsigned long long flags)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	CUresult refused;
	struct area *a;
	int fd;

	ENTER("%#llx %zu %d %#llx", p, n, type, flags);
	if (type != 1 /* DMA_BUF_FD */ || p & (page - 1) || n & (page - 1) || !n || flags & ~1ULL)
		LEAVE(INVALID_VALUE);
	if (!core_knob("DOUBLE_CUDA_DMABUF", 1) || (flags && !core_knob("DOUBLE_CUDA_PCIE", 1)))
		LEAVE(NOT_SUPPORTED);
	refused = alike(p, n);
	if (refused)
		LEAVE(refused);
	a = core_find(p);
	if (a && a->size - (size_t)(p - a->addr) < n && a->flags & MAPPED) {
		if (core_knob_is("DOUBLE_CUDA_EXPORT", "single"))
			LEAVE(INVALID_VALUE);
		if (core_knob_is("DOUBLE_CUDA_EXPORT", "short"))
			n = a->size - (size_t)(p - a->addr);
	}
	if (a && core_knob_is("DOUBLE_CUDA_EXPORT", "block"))
		fd = core_export_block(a);
	else
		fd = core_export_range(p, n);
	if (fd < 0)
		LEAVE(result(fd));
	*(int *)handle = fd;
	LEAVE(OK);
}
#endif

/* The virtual memory API. A handle is a struct vmm, which has a block. */
struct prop {
	int type, handle_types, location_type, location_id;
	void *win32;
	unsigned char compression, rdma;
	unsigned short usage;
	unsigned char reserved[4];
};

struct vmm {
	struct block *block;
	int device;
	bool rdma;
};

static bool valid(const struct prop *p)
{
	return p->type == 1 && p->handle_types == 0 && p->location_type == 1 && is_device(p->location_id) &&
	       !p->win32 && !p->compression && !p->usage && p->rdma <= 1;
}

API CUresult cuMemGetAllocationGranularity(size_t *n, const struct prop *p, int option)
{
	ENTER("%d", option);
	*n = GRANULARITY;
	LEAVE(valid(p) && option == 0 ? OK : INVALID_VALUE);
}

API CUresult cuMemCreate(CUhandle *h, size_t n, const struct prop *p, unsigned long long flags)
{
	struct vmm *v;

	ENTER("%zu rdma %d", n, p->rdma);
	if (!valid(p) || flags || !n || n % GRANULARITY)
		LEAVE(INVALID_VALUE);
	v = calloc(1, sizeof(*v));
	if (v)
		v->block = core_block(n, p->location_id);
	if (!v || !v->block) {
		free(v);
		LEAVE(OUT_OF_MEMORY);
	}
	v->device = p->location_id;
	v->rdma = p->rdma;
	*h = (CUhandle)(uintptr_t)v;
	LEAVE(OK);
}

API CUresult cuMemRelease(CUhandle h)
{
	struct vmm *v = (struct vmm *)(uintptr_t)h;

	ENTER("%s", "");
	core_block_put(v->block);
	free(v);
	LEAVE(OK);
}

/* The program's reservations. core_reserve() never gives addresses back. */
static struct {
	CUdeviceptr addr;
	size_t size;
} reserved[1024];

API CUresult cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t align, CUdeviceptr at, unsigned long long flags)
{
	ENTER("%zu", n);
	if (!n || n % GRANULARITY || (align & (align - 1)) || at || flags)
		LEAVE(INVALID_VALUE);
	for (int i = 0; i < 1024; i++) {
		if (reserved[i].size)
			continue;
		*p = core_reserve(n);
		if (!*p)
			break;
		reserved[i].addr = *p;
		reserved[i].size = n;
		LEAVE(OK);
	}
	LEAVE(OUT_OF_MEMORY);
}

static bool inside_reserved(CUdeviceptr p, size_t n)
{
	for (int i = 0; i < 1024; i++)
		if (p >= reserved[i].addr && p - reserved[i].addr < reserved[i].size &&
		    n <= reserved[i].size - (size_t)(p - reserved[i].addr))
			return true;
	return false;
}

API CUresult cuMemAddressFree(CUdeviceptr p, size_t n)
{
	ENTER("%#llx %zu", p, n);
	for (int i = 0; i < 1024; i++) {
		if (!n || reserved[i].addr != p || reserved[i].size != n)
			continue;
		/* The program has to unmap the range first. */
		for (CUdeviceptr at = p; at < p + n; at += GRANULARITY)
			if (core_find(at))
				LEAVE(INVALID_VALUE);
		reserved[i].size = 0;
		LEAVE(OK);
	}
	LEAVE(INVALID_VALUE);
}

API CUresult cuMemMap(CUdeviceptr p, size_t n, size_t offset, CUhandle h, unsigned long long flags)
{
	struct vmm *v = (struct vmm *)(uintptr_t)h;
	struct area *a;

	ENTER("%#llx %zu", p, n);
	if (!v || offset || flags || n != core_block_size(v->block) || !inside_reserved(p, n) || core_find(p))
		LEAVE(INVALID_VALUE);
	a = core_map(p, n, v->block, 0, v->device);
	if (!a)
		LEAVE(OUT_OF_MEMORY);
	a->flags = MAPPED | (v->rdma ? 0 : NO_RDMA);
	LEAVE(OK);
}

API CUresult cuMemUnmap(CUdeviceptr p, size_t n)
{
	ENTER("%#llx %zu", p, n);
	while (n) {
		struct area *a = core_find(p);

		if (!a || a->addr != p || a->size > n || !(a->flags & MAPPED))
			LEAVE(INVALID_VALUE);
		p += a->size;
		n -= a->size;
		core_remove(a);
	}
	LEAVE(OK);
}

struct access {
	int location_type, location_id, flags;
};

API CUresult cuMemSetAccess(CUdeviceptr p, size_t n, const struct access *d, size_t count)
{
	ENTER("%#llx %zu", p, n);
	if (count != 1 || d->location_type != 1 || !is_device(d->location_id) || d->flags != 3)
		LEAVE(INVALID_VALUE);
	while (n) {
		struct area *a = core_find(p);

		if (!a || a->size > n || !(a->flags & MAPPED))
			LEAVE(INVALID_VALUE);
		a->flags |= ACCESSIBLE;
		p += a->size;
		n -= a->size;
	}
	LEAVE(OK);
}
