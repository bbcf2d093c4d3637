/* SPDX-License-Identifier: Apache-2.0 */
/* Calls through the table; handles are numbers on Go's side. */
#ifndef GPURDMA_CALLS_ZE_H
#define GPURDMA_CALLS_ZE_H

#include "abi_ze.h"

typedef const struct gpurdma_ze *gpurdma_api;

#define GPURDMA_DRIVER(h) ((gpurdma_ze_driver_handle)(h))
#define GPURDMA_DEVICE(h) ((gpurdma_ze_device_handle)(h))
#define GPURDMA_CONTEXT(h) ((gpurdma_ze_context_handle)(h))
#define GPURDMA_LIST(h) ((gpurdma_ze_list_handle)(h))

static inline int gpurdma_ze_init(gpurdma_api a) { return a->zeInit(0); }

static inline int gpurdma_ze_drivers(gpurdma_api a, uint32_t *n, uintptr_t *out)
{
	return a->zeDriverGet(n, (gpurdma_ze_driver_handle *)out);
}

static inline int gpurdma_ze_devices(gpurdma_api a, uintptr_t driver, uint32_t *n, uintptr_t *out)
{
	return a->zeDeviceGet(GPURDMA_DRIVER(driver), n, (gpurdma_ze_device_handle *)out);
}

static inline int gpurdma_ze_properties(gpurdma_api a, uintptr_t dev, gpurdma_ze_device_properties *p)
{
	p->stype = GPURDMA_ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
	return a->zeDeviceGetProperties(GPURDMA_DEVICE(dev), p);
}

/* The first of the device's memories: the one that ordinal 0 allocates from. */
static inline int gpurdma_ze_memory(gpurdma_api a, uintptr_t dev, gpurdma_ze_memory_properties *p)
{
	uint32_t n = 1;

	p->stype = GPURDMA_ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
	return a->zeDeviceGetMemoryProperties(GPURDMA_DEVICE(dev), &n, p);
}

static inline int gpurdma_ze_external(gpurdma_api a, uintptr_t dev, gpurdma_ze_external_properties *p)
{
	p->stype = GPURDMA_ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES;
	return a->zeDeviceGetExternalMemoryProperties(GPURDMA_DEVICE(dev), p);
}

static inline int gpurdma_ze_pci(gpurdma_api a, uintptr_t dev, gpurdma_ze_pci_properties *p)
{
	p->stype = GPURDMA_ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES;
	return a->zeDevicePciGetPropertiesExt(GPURDMA_DEVICE(dev), p);
}

static inline int gpurdma_ze_context(gpurdma_api a, uintptr_t driver, uintptr_t *ctx)
{
	gpurdma_ze_context_desc d = { .stype = GPURDMA_ZE_STRUCTURE_TYPE_CONTEXT_DESC };

	return a->zeContextCreate(GPURDMA_DRIVER(driver), &d, (gpurdma_ze_context_handle *)ctx);
}


/* A synchronous list: an appended command is done when the call returns. */
static inline int gpurdma_ze_list(gpurdma_api a, uintptr_t ctx, uintptr_t dev, uintptr_t *list)
{
	gpurdma_ze_queue_desc d = {
		.stype = GPURDMA_ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
		.mode = GPURDMA_ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
	};

	return a->zeCommandListCreateImmediate(GPURDMA_CONTEXT(ctx), GPURDMA_DEVICE(dev), &d, (gpurdma_ze_list_handle *)list);
}

static inline int gpurdma_ze_list_destroy(gpurdma_api a, uintptr_t list) { return a->zeCommandListDestroy(GPURDMA_LIST(list)); }

static inline int gpurdma_ze_to_host(gpurdma_api a, uintptr_t list, void *to, uintptr_t from, size_t n)
{
	return a->zeCommandListAppendMemoryCopy(GPURDMA_LIST(list), to, (const void *)from, n, NULL, 0, NULL);
}

static inline int gpurdma_ze_to_device(gpurdma_api a, uintptr_t list, uintptr_t to, const void *from, size_t n)
{
	return a->zeCommandListAppendMemoryCopy(GPURDMA_LIST(list), (void *)to, from, n, NULL, 0, NULL);
}

static inline int gpurdma_ze_zero(gpurdma_api a, uintptr_t list, uintptr_t p, size_t n)
{
	const unsigned char zero = 0;

	return a->zeCommandListAppendMemoryFill(GPURDMA_LIST(list), (void *)p, &zero, sizeof(zero), n, NULL, 0, NULL);
}

static inline int gpurdma_ze_alloc(gpurdma_api a, uintptr_t ctx, uintptr_t dev, size_t n, size_t align, _Bool export, uintptr_t *p)
{
	gpurdma_ze_export_desc e = {
		.stype = GPURDMA_ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC,
		.flags = GPURDMA_ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
	};
	gpurdma_ze_alloc_desc d = { .stype = GPURDMA_ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, .pNext = export ? &e : NULL };
	void *mem = NULL;
	int r = a->zeMemAllocDevice(GPURDMA_CONTEXT(ctx), &d, n, align, GPURDMA_DEVICE(dev), &mem);

	*p = (uintptr_t)mem;
	return r;
}

static inline int gpurdma_ze_free(gpurdma_api a, uintptr_t ctx, uintptr_t p) { return a->zeMemFree(GPURDMA_CONTEXT(ctx), (void *)p); }

static inline int gpurdma_ze_alloc_facts(gpurdma_api a, uintptr_t ctx, uintptr_t p, gpurdma_ze_alloc_properties *out, uintptr_t *dev)
{
	out->stype = GPURDMA_ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
	return a->zeMemGetAllocProperties(GPURDMA_CONTEXT(ctx), (const void *)p, out, (gpurdma_ze_device_handle *)dev);
}

static inline int gpurdma_ze_export(gpurdma_api a, uintptr_t ctx, uintptr_t p, int *fd)
{
	gpurdma_ze_export_fd e = {
		.stype = GPURDMA_ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD,
		.flags = GPURDMA_ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
		.fd = -1,
	};
	gpurdma_ze_alloc_properties out = {
		.stype = GPURDMA_ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES,
		.pNext = &e,
	};
	int r = a->zeMemGetAllocProperties(GPURDMA_CONTEXT(ctx), (const void *)p, &out, NULL);

	*fd = e.fd;
	return r;
}

static inline int gpurdma_ze_range(gpurdma_api a, uintptr_t ctx, uintptr_t p, uintptr_t *base, size_t *n)
{
	void *b = NULL;
	int r = a->zeMemGetAddressRange(GPURDMA_CONTEXT(ctx), (const void *)p, &b, n);

	*base = (uintptr_t)b;
	return r;
}

#endif
