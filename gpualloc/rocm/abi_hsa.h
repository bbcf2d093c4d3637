/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the HSA runtime that this package uses, declared anew so that the
 * build needs no header. Names are those of hsa.h and hsa_ext_amd.h, with the
 * prefix gpurdma_. testbed/doubles/hsa.c compares the numbers and layouts
 * with Debian's headers when it is compiled.
 */
#ifndef GPURDMA_ABI_HSA_H
#define GPURDMA_ABI_HSA_H

#include <stddef.h>
#include <stdint.h>

typedef int gpurdma_hsa_status;

typedef struct {
	uint64_t handle;
} gpurdma_hsa_agent;

typedef struct {
	uint64_t handle;
} gpurdma_hsa_pool;

enum {
	GPURDMA_HSA_AGENT_INFO_NAME = 0,
	GPURDMA_HSA_AGENT_INFO_DEVICE = 17,
	GPURDMA_HSA_AMD_AGENT_INFO_BDFID = 0xa006,
	GPURDMA_HSA_AMD_AGENT_INFO_PRODUCT_NAME = 0xa009,
	GPURDMA_HSA_AMD_AGENT_INFO_DOMAIN = 0xa00f,
	GPURDMA_HSA_AMD_AGENT_INFO_UUID = 0xa011,
	GPURDMA_HSA_AMD_AGENT_INFO_MEMORY_AVAIL = 0xa015, /* ROCm 5.3 on */
	GPURDMA_HSA_DEVICE_TYPE_GPU = 1,
	GPURDMA_HSA_AMD_SEGMENT_GLOBAL = 0,
	GPURDMA_HSA_AMD_POOL_INFO_SEGMENT = 0,
	GPURDMA_HSA_AMD_POOL_INFO_GLOBAL_FLAGS = 1,
	GPURDMA_HSA_AMD_POOL_INFO_SIZE = 2,
	GPURDMA_HSA_AMD_POOL_INFO_ALLOC_ALLOWED = 5,
	GPURDMA_HSA_AMD_POOL_INFO_ALLOC_GRANULE = 6,
	GPURDMA_HSA_AMD_POOL_FLAG_COARSE_GRAINED = 4,
	GPURDMA_HSA_EXT_POINTER_TYPE_UNKNOWN = 0,
	GPURDMA_HSA_EXT_POINTER_TYPE_LOCKED = 2,
	GPURDMA_HSA_STATUS_INFO_BREAK = 1,
};

/* hsa_amd_pointer_info_t, as of ROCm 5.2: newer runtimes fill only what size covers. */
typedef struct {
	uint32_t size;
	int type;
	void *agentBaseAddress;
	void *hostBaseAddress;
	size_t sizeInBytes;
	void *userData;
	gpurdma_hsa_agent agentOwner;
	uint32_t global_flags;
} gpurdma_hsa_pointer_info;

_Static_assert(sizeof(gpurdma_hsa_pointer_info) == 56, "hsa_amd_pointer_info_t");

typedef gpurdma_hsa_status (*gpurdma_hsa_agent_callback)(gpurdma_hsa_agent, void *);
typedef gpurdma_hsa_status (*gpurdma_hsa_pool_callback)(gpurdma_hsa_pool, void *);

/* The functions, as found in one loaded library. NULL: not there. */
struct gpurdma_hsa {
	gpurdma_hsa_status (*hsa_init)(void);
	gpurdma_hsa_status (*hsa_iterate_agents)(gpurdma_hsa_agent_callback, void *);
	gpurdma_hsa_status (*hsa_agent_get_info)(gpurdma_hsa_agent, int, void *);
	gpurdma_hsa_status (*hsa_memory_copy)(void *, const void *, size_t);
	gpurdma_hsa_status (*hsa_amd_agent_iterate_memory_pools)(gpurdma_hsa_agent, gpurdma_hsa_pool_callback, void *);
	gpurdma_hsa_status (*hsa_amd_memory_pool_get_info)(gpurdma_hsa_pool, int, void *);
	gpurdma_hsa_status (*hsa_amd_memory_pool_allocate)(gpurdma_hsa_pool, size_t, uint32_t, void **);
	gpurdma_hsa_status (*hsa_amd_memory_pool_free)(void *);
	gpurdma_hsa_status (*hsa_amd_memory_fill)(void *, uint32_t, size_t);
	gpurdma_hsa_status (*hsa_amd_pointer_info)(const void *, gpurdma_hsa_pointer_info *, void *(*)(size_t), uint32_t *, gpurdma_hsa_agent **);
	gpurdma_hsa_status (*hsa_amd_portable_export_dmabuf)(const void *, size_t, int *, uint64_t *);
	gpurdma_hsa_status (*hsa_amd_portable_export_dmabuf_v2)(const void *, size_t, int *, uint64_t *, uint64_t);
	gpurdma_hsa_status (*hsa_amd_portable_close_dmabuf)(int);
};

#endif
