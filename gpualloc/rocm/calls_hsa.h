/* SPDX-License-Identifier: Apache-2.0 */
/* Calls through the table, and callbacks that collect handles in an array. */
#ifndef GPURDMA_CALLS_HSA_H
#define GPURDMA_CALLS_HSA_H

#include "abi_hsa.h"

typedef const struct gpurdma_hsa *gpurdma_api;

#define GPURDMA_HSA_MAX 256

/* Handles in the order of the iteration; n also counts those that do not fit. */
struct gpurdma_hsa_list {
	uint64_t handle[GPURDMA_HSA_MAX];
	unsigned int n;
};

static inline void gpurdma_hsa_add(struct gpurdma_hsa_list *l, uint64_t handle)
{
	if (l->n < GPURDMA_HSA_MAX)
		l->handle[l->n] = handle;
	l->n++;
}

static gpurdma_hsa_status gpurdma_hsa_add_agent(gpurdma_hsa_agent a, void *list)
{
	gpurdma_hsa_add(list, a.handle);
	return 0;
}

static gpurdma_hsa_status gpurdma_hsa_add_pool(gpurdma_hsa_pool p, void *list)
{
	gpurdma_hsa_add(list, p.handle);
	return 0;
}

static inline int gpurdma_hsa_init(gpurdma_api a) { return a->hsa_init(); }

static inline int gpurdma_hsa_agents(gpurdma_api a, struct gpurdma_hsa_list *l)
{
	return a->hsa_iterate_agents(gpurdma_hsa_add_agent, l);
}

static inline int gpurdma_hsa_agent_info(gpurdma_api a, uint64_t agent, int attr, void *v)
{
	return a->hsa_agent_get_info((gpurdma_hsa_agent){ agent }, attr, v);
}

static inline int gpurdma_hsa_pools(gpurdma_api a, uint64_t agent, struct gpurdma_hsa_list *l)
{
	return a->hsa_amd_agent_iterate_memory_pools((gpurdma_hsa_agent){ agent }, gpurdma_hsa_add_pool, l);
}

static inline int gpurdma_hsa_pool_info(gpurdma_api a, uint64_t pool, int attr, void *v)
{
	return a->hsa_amd_memory_pool_get_info((gpurdma_hsa_pool){ pool }, attr, v);
}

static inline int gpurdma_hsa_alloc(gpurdma_api a, uint64_t pool, size_t n, uintptr_t *p)
{
	void *mem = NULL;
	int r = a->hsa_amd_memory_pool_allocate((gpurdma_hsa_pool){ pool }, n, 0, &mem);

	*p = (uintptr_t)mem;
	return r;
}

static inline int gpurdma_hsa_free(gpurdma_api a, uintptr_t p) { return a->hsa_amd_memory_pool_free((void *)p); }

static inline int gpurdma_hsa_fill(gpurdma_api a, uintptr_t p, uint32_t v, size_t n) { return a->hsa_amd_memory_fill((void *)p, v, n); }

static inline int gpurdma_hsa_to_host(gpurdma_api a, void *to, uintptr_t from, size_t n) { return a->hsa_memory_copy(to, (const void *)from, n); }

static inline int gpurdma_hsa_to_device(gpurdma_api a, uintptr_t to, const void *from, size_t n) { return a->hsa_memory_copy((void *)to, from, n); }

static inline int gpurdma_hsa_pointer_facts(gpurdma_api a, uintptr_t p, gpurdma_hsa_pointer_info *info)
{
	info->size = sizeof(*info);
	return a->hsa_amd_pointer_info((const void *)p, info, NULL, NULL, NULL);
}

/* Only the second version of the call takes flags; a runtime may lack it. */
static inline int gpurdma_hsa_export(gpurdma_api a, uintptr_t p, size_t n, int *fd, uint64_t *offset, uint64_t flags)
{
	if (flags)
		return a->hsa_amd_portable_export_dmabuf_v2((const void *)p, n, fd, offset, flags);
	return a->hsa_amd_portable_export_dmabuf((const void *)p, n, fd, offset);
}

static inline int gpurdma_hsa_close(gpurdma_api a, int fd) { return a->hsa_amd_portable_close_dmabuf(fd); }

#endif
