// SPDX-License-Identifier: Apache-2.0
/*
 * libhsa-runtime64.so.1, as far as gpualloc/rocm uses it. It is compiled against
 * Debian's headers, which do not have the export functions yet.
 *
 * V1 leaves out hsa_amd_portable_export_dmabuf_v2.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include "../../gpualloc/rocm/abi_hsa.h"
#include "core.h"

/* Compares the project's own declarations with the headers. */
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(GPURDMA_HSA_AGENT_INFO_NAME, HSA_AGENT_INFO_NAME);
SAME(GPURDMA_HSA_AGENT_INFO_DEVICE, HSA_AGENT_INFO_DEVICE);
SAME(GPURDMA_HSA_AMD_AGENT_INFO_BDFID, HSA_AMD_AGENT_INFO_BDFID);
SAME(GPURDMA_HSA_AMD_AGENT_INFO_PRODUCT_NAME, HSA_AMD_AGENT_INFO_PRODUCT_NAME);
SAME(GPURDMA_HSA_AMD_AGENT_INFO_DOMAIN, HSA_AMD_AGENT_INFO_DOMAIN);
SAME(GPURDMA_HSA_AMD_AGENT_INFO_UUID, HSA_AMD_AGENT_INFO_UUID);
SAME(GPURDMA_HSA_DEVICE_TYPE_GPU, HSA_DEVICE_TYPE_GPU);
SAME(GPURDMA_HSA_AMD_SEGMENT_GLOBAL, HSA_AMD_SEGMENT_GLOBAL);
SAME(GPURDMA_HSA_AMD_POOL_INFO_SEGMENT, HSA_AMD_MEMORY_POOL_INFO_SEGMENT);
SAME(GPURDMA_HSA_AMD_POOL_INFO_GLOBAL_FLAGS, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS);
SAME(GPURDMA_HSA_AMD_POOL_INFO_SIZE, HSA_AMD_MEMORY_POOL_INFO_SIZE);
SAME(GPURDMA_HSA_AMD_POOL_INFO_ALLOC_ALLOWED, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED);
SAME(GPURDMA_HSA_AMD_POOL_INFO_ALLOC_GRANULE, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE);
SAME(GPURDMA_HSA_AMD_POOL_FLAG_COARSE_GRAINED, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED);
SAME(GPURDMA_HSA_EXT_POINTER_TYPE_UNKNOWN, HSA_EXT_POINTER_TYPE_UNKNOWN);
SAME(GPURDMA_HSA_EXT_POINTER_TYPE_LOCKED, HSA_EXT_POINTER_TYPE_LOCKED);
SAME(GPURDMA_HSA_STATUS_INFO_BREAK, HSA_STATUS_INFO_BREAK);
SAME(sizeof(gpurdma_hsa_agent), sizeof(hsa_agent_t));
SAME(sizeof(gpurdma_hsa_pool), sizeof(hsa_amd_memory_pool_t));
SAME(sizeof(gpurdma_hsa_pointer_info), sizeof(hsa_amd_pointer_info_t));
SAME(offsetof(gpurdma_hsa_pointer_info, agentBaseAddress), offsetof(hsa_amd_pointer_info_t, agentBaseAddress));
SAME(offsetof(gpurdma_hsa_pointer_info, sizeInBytes), offsetof(hsa_amd_pointer_info_t, sizeInBytes));
SAME(offsetof(gpurdma_hsa_pointer_info, agentOwner), offsetof(hsa_amd_pointer_info_t, agentOwner));
SAME(offsetof(gpurdma_hsa_pointer_info, global_flags), offsetof(hsa_amd_pointer_info_t, global_flags));

#define API __attribute__((visibility("default")))
#define GRANULE 4096u
#define MEMORY_AVAIL 0xa015 /* not in Debian's header */

/* Agent 1 is the CPU, 2 and on are GPUs. Pool 100 is the CPU's; GPU n has 200+n. */
#define CPU_AGENT 1u
#define FIRST_GPU 2u
#define CPU_POOL 100u
#define FIRST_POOL 200u
#define LOCAL_POOL 300u /* a GPU's group memory; allocation is not allowed */

static int initialised;

#define ENTER(...)                                                                        \
	do {                                                                              \
		int forced;                                                               \
		core_lock();                                                              \
		forced = core_call(__func__, __VA_ARGS__);                                \
		if (forced || !initialised) {                                             \
			core_unlock();                                                    \
			return (hsa_status_t)(forced ? forced : HSA_STATUS_ERROR_NOT_INITIALIZED); \
		}                                                                         \
	} while (0)

#define LEAVE(status)                         \
	do {                                  \
		hsa_status_t value = (status); \
		core_unlock();                \
		return value;                 \
	} while (0)

static int gpu(uint64_t agent) { return agent >= FIRST_GPU && agent < FIRST_GPU + (uint64_t)core_devices() ? (int)(agent - FIRST_GPU) : -1; }

API hsa_status_t hsa_init(void)
{
	int forced;

	core_lock();
	forced = core_call(__func__, "%s", "");
	if (!forced)
		initialised++;
	core_unlock();
	return (hsa_status_t)forced;
}

API hsa_status_t hsa_iterate_agents(hsa_status_t (*callback)(hsa_agent_t, void *), void *data)
{
	int n;

	ENTER("%s", "");
	n = core_devices();
	core_unlock(); /* a callback may call the library */
	for (int i = -1; i < n; i++) {
		hsa_status_t s = callback((hsa_agent_t){ i < 0 ? CPU_AGENT : FIRST_GPU + (uint64_t)i }, data);

		if (s != HSA_STATUS_SUCCESS)
			return s;
	}
	return HSA_STATUS_SUCCESS;
}

API hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attr, void *v)
{
	int g = gpu(agent.handle);
	unsigned int domain, bus, dev, fn;
	unsigned char id[16];
	char pci[32];

	ENTER("%#x", attr);
	if (g < 0 && agent.handle != CPU_AGENT)
		LEAVE(HSA_STATUS_ERROR_INVALID_AGENT);
	core_pci(g < 0 ? 0 : g, pci, sizeof(pci));
	if (sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &dev, &fn) != 4)
		LEAVE(HSA_STATUS_ERROR);
	switch ((int)attr) {
	case HSA_AGENT_INFO_NAME:
		snprintf(v, 64, "%s", g < 0 ? "cpu" : "gfx000");
		break;
	case HSA_AGENT_INFO_DEVICE:
		*(hsa_device_type_t *)v = g < 0 ? HSA_DEVICE_TYPE_CPU : HSA_DEVICE_TYPE_GPU;
		break;
	case HSA_AMD_AGENT_INFO_PRODUCT_NAME:
		snprintf(v, 64, "HSA Double %d", g);
		break;
	case HSA_AMD_AGENT_INFO_BDFID:
		*(uint32_t *)v = bus << 8 | dev << 3 | fn;
		break;
	case HSA_AMD_AGENT_INFO_DOMAIN:
		*(uint32_t *)v = domain;
		break;
	case HSA_AMD_AGENT_INFO_UUID:
		core_uuid(g < 0 ? 0 : g, id);
		if (core_knob("DOUBLE_HSA_UUID", 1))
			snprintf(v, 21, "GPU-%02x%02x%02x%02x%02x%02x%02x%02x", id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7]);
		else
			snprintf(v, 21, "GPU-XX");
		break;
	case MEMORY_AVAIL:
		if (g < 0)
			LEAVE(HSA_STATUS_ERROR_INVALID_ARGUMENT);
		*(uint64_t *)v = core_free_bytes(g);
		break;
	default:
		LEAVE(HSA_STATUS_ERROR_INVALID_ARGUMENT);
	}
	LEAVE(HSA_STATUS_SUCCESS);
}

API hsa_status_t hsa_amd_agent_iterate_memory_pools(hsa_agent_t agent, hsa_status_t (*callback)(hsa_amd_memory_pool_t, void *), void *data)
{
	int g = gpu(agent.handle);
	hsa_status_t s;

	ENTER("%d", g);
	core_unlock();
	if (g < 0)
		return callback((hsa_amd_memory_pool_t){ CPU_POOL }, data);
	s = callback((hsa_amd_memory_pool_t){ LOCAL_POOL + (uint64_t)g }, data);
	if (s != HSA_STATUS_SUCCESS || core_knob("DOUBLE_HSA_NO_POOL", 0))
		return s;
	return callback((hsa_amd_memory_pool_t){ FIRST_POOL + (uint64_t)g }, data);
}

API hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t pool, hsa_amd_memory_pool_info_t attr, void *v)
{
	bool local = pool.handle >= LOCAL_POOL;

	ENTER("%#x", attr);
	switch ((int)attr) {
	case HSA_AMD_MEMORY_POOL_INFO_SEGMENT:
		*(hsa_amd_segment_t *)v = local ? HSA_AMD_SEGMENT_GROUP : HSA_AMD_SEGMENT_GLOBAL;
		break;
	case HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS:
		*(uint32_t *)v = pool.handle == CPU_POOL ? HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED :
							  HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
		break;
	case HSA_AMD_MEMORY_POOL_INFO_SIZE:
		*(size_t *)v = core_total();
		break;
	case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED:
		*(bool *)v = !local;
		break;
	case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE:
		*(size_t *)v = GRANULE;
		break;
	default:
		LEAVE(HSA_STATUS_ERROR_INVALID_ARGUMENT);
	}
	LEAVE(HSA_STATUS_SUCCESS);
}

API hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t n, uint32_t flags, void **p)
{
	struct area *a;

	ENTER("%zu", n);
	if (pool.handle < FIRST_POOL || pool.handle >= LOCAL_POOL)
		LEAVE((hsa_status_t)HSA_STATUS_ERROR_INVALID_MEMORY_POOL);
	if (!n || flags || !p)
		LEAVE(HSA_STATUS_ERROR_INVALID_ARGUMENT);
	n = (n + GRANULE - 1) & ~(size_t)(GRANULE - 1);
	a = core_alloc(n, (int)(pool.handle - FIRST_POOL), true);
	if (!a)
		LEAVE(HSA_STATUS_ERROR_OUT_OF_RESOURCES);
	*p = (void *)(uintptr_t)a->addr;
	LEAVE(HSA_STATUS_SUCCESS);
}

API hsa_status_t hsa_amd_memory_pool_free(void *p)
{
	struct area *a;

	ENTER("%p", p);
	a = core_find((uintptr_t)p);
	if (!a || a->addr != (uintptr_t)p)
		LEAVE(HSA_STATUS_ERROR_INVALID_ALLOCATION);
	core_remove(a);
	LEAVE(HSA_STATUS_SUCCESS);
}

API hsa_status_t hsa_amd_memory_fill(void *p, uint32_t v, size_t words)
{
	ENTER("%p %zu", p, words);
	/* The doubles fill with bytes: gpualloc/rocm needs no other pattern. */
	if (v != (v & 0xff) * 0x01010101u)
		LEAVE(HSA_STATUS_ERROR_INVALID_ARGUMENT);
	LEAVE(core_fill((uintptr_t)p, (int)(v & 0xff), words * 4) ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_ALLOCATION);
}

API hsa_status_t hsa_memory_copy(void *to, const void *from, size_t n)
{
	ENTER("%zu", n);
	if (core_find((uintptr_t)to))
		LEAVE(core_write((uintptr_t)to, from, n) ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_ALLOCATION);
	LEAVE(core_read(to, (uintptr_t)from, n) ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_ALLOCATION);
}

API hsa_status_t hsa_amd_pointer_info(const void *p, hsa_amd_pointer_info_t *info, void *(*alloc)(size_t), uint32_t *n, hsa_agent_t **agents)
{
	uint32_t size = info->size;
	hsa_amd_pointer_info_t out = { .size = sizeof(out) };
	struct area *a;

	ENTER("%p", p);
	if (alloc || n || agents || !size)
		LEAVE(HSA_STATUS_ERROR_INVALID_ARGUMENT);
	a = core_find((uintptr_t)p);
	if (a) {
		out.type = core_knob("DOUBLE_HSA_LOCKED", 0) ? HSA_EXT_POINTER_TYPE_LOCKED : HSA_EXT_POINTER_TYPE_HSA;
		out.agentBaseAddress = out.hostBaseAddress = (void *)(uintptr_t)a->addr;
		out.sizeInBytes = a->size;
		out.agentOwner.handle = FIRST_GPU + (uint64_t)a->device;
		out.global_flags = HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
	}
	if (size > sizeof(out))
		size = sizeof(out);
	out.size = size;
	memcpy(info, &out, size);
	LEAVE(HSA_STATUS_SUCCESS);
}

/* Like the real library, exports the whole block and says where in it p lies. */
static hsa_status_t export(const void *p, size_t n, int *fd, uint64_t *offset)
{
	struct area *a = core_find((uintptr_t)p);
	int got;

	if (!p || !fd || !offset || !n)
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	if (!a || a->size - (size_t)((uintptr_t)p - a->addr) < n)
		return HSA_STATUS_ERROR_INVALID_ALLOCATION;
	got = core_export_block(a);
	if (got < 0)
		return got == -EMFILE || got == -ENFILE || got == -ENOMEM ? HSA_STATUS_ERROR_OUT_OF_RESOURCES : HSA_STATUS_ERROR;
	*fd = got;
	*offset = core_knob_is("DOUBLE_HSA_EXPORT", "zero") ? 0 : a->offset + ((uintptr_t)p - a->addr);
	return HSA_STATUS_SUCCESS;
}

API hsa_status_t hsa_amd_portable_export_dmabuf(const void *p, size_t n, int *fd, uint64_t *offset);
API hsa_status_t hsa_amd_portable_export_dmabuf(const void *p, size_t n, int *fd, uint64_t *offset)
{
	ENTER("%p %zu", p, n);
	LEAVE(export(p, n, fd, offset));
}

#ifndef V1
API hsa_status_t hsa_amd_portable_export_dmabuf_v2(const void *p, size_t n, int *fd, uint64_t *offset, uint64_t flags);
API hsa_status_t hsa_amd_portable_export_dmabuf_v2(const void *p, size_t n, int *fd, uint64_t *offset, uint64_t flags)
{
	ENTER("%p %zu %#lx", p, n, (unsigned long)flags);
	LEAVE(flags > 1 ? HSA_STATUS_ERROR_INVALID_ARGUMENT : export(p, n, fd, offset));
}
#endif

API hsa_status_t hsa_amd_portable_close_dmabuf(int fd);
API hsa_status_t hsa_amd_portable_close_dmabuf(int fd)
{
	ENTER("%d", fd);
	LEAVE(close(fd) ? HSA_STATUS_ERROR_RESOURCE_FREE : HSA_STATUS_SUCCESS);
}
