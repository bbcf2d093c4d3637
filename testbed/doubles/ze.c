// SPDX-License-Identifier: Apache-2.0
/*
 * libze_loader.so.1, as far as gpualloc/levelzero uses it, compiled against
 * Debian's ze_api.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ZE_MAKEDLL
#include <level_zero/ze_api.h>

#include "../../gpualloc/levelzero/abi_ze.h"
#include "core.h"

/* Compares the project's own declarations with the header. */
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
#define SAME_MEMBER(ours, theirs, member) SAME(offsetof(ours, member), offsetof(theirs, member))
#define SAME_NUMBER(name) SAME(GPURDMA_##name, name)
SAME_NUMBER(ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
SAME_NUMBER(ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES);
SAME_NUMBER(ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES);
SAME_NUMBER(ZE_STRUCTURE_TYPE_CONTEXT_DESC);
SAME_NUMBER(ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
SAME_NUMBER(ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
SAME_NUMBER(ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES);
SAME_NUMBER(ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC);
SAME_NUMBER(ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD);
SAME_NUMBER(ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES);
SAME_NUMBER(ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF);
SAME_NUMBER(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
SAME_NUMBER(ZE_DEVICE_TYPE_GPU);
SAME_NUMBER(ZE_MEMORY_TYPE_UNKNOWN);
SAME_NUMBER(ZE_MEMORY_TYPE_HOST);
SAME_NUMBER(ZE_MEMORY_TYPE_DEVICE);
SAME_NUMBER(ZE_MEMORY_TYPE_SHARED);
SAME(sizeof(gpurdma_ze_device_properties), sizeof(ze_device_properties_t));
SAME_MEMBER(gpurdma_ze_device_properties, ze_device_properties_t, vendorId);
SAME_MEMBER(gpurdma_ze_device_properties, ze_device_properties_t, maxMemAllocSize);
SAME_MEMBER(gpurdma_ze_device_properties, ze_device_properties_t, timerResolution);
SAME_MEMBER(gpurdma_ze_device_properties, ze_device_properties_t, uuid);
SAME_MEMBER(gpurdma_ze_device_properties, ze_device_properties_t, name);
SAME(sizeof(gpurdma_ze_pci_properties), sizeof(ze_pci_ext_properties_t));
SAME(offsetof(gpurdma_ze_pci_properties, domain), offsetof(ze_pci_ext_properties_t, address));
SAME(offsetof(gpurdma_ze_pci_properties, genVersion), offsetof(ze_pci_ext_properties_t, maxSpeed));
SAME(sizeof(gpurdma_ze_external_properties), sizeof(ze_device_external_memory_properties_t));
SAME_MEMBER(gpurdma_ze_external_properties, ze_device_external_memory_properties_t, memoryAllocationExportTypes);
SAME(sizeof(gpurdma_ze_memory_properties), sizeof(ze_device_memory_properties_t));
SAME_MEMBER(gpurdma_ze_memory_properties, ze_device_memory_properties_t, totalSize);
SAME(sizeof(gpurdma_ze_context_desc), sizeof(ze_context_desc_t));
SAME(sizeof(gpurdma_ze_queue_desc), sizeof(ze_command_queue_desc_t));
SAME_MEMBER(gpurdma_ze_queue_desc, ze_command_queue_desc_t, mode);
SAME(sizeof(gpurdma_ze_alloc_desc), sizeof(ze_device_mem_alloc_desc_t));
SAME_MEMBER(gpurdma_ze_alloc_desc, ze_device_mem_alloc_desc_t, ordinal);
SAME(sizeof(gpurdma_ze_export_desc), sizeof(ze_external_memory_export_desc_t));
SAME_MEMBER(gpurdma_ze_export_desc, ze_external_memory_export_desc_t, flags);
SAME(sizeof(gpurdma_ze_export_fd), sizeof(ze_external_memory_export_fd_t));
SAME_MEMBER(gpurdma_ze_export_fd, ze_external_memory_export_fd_t, fd);
SAME(sizeof(gpurdma_ze_alloc_properties), sizeof(ze_memory_allocation_properties_t));
SAME_MEMBER(gpurdma_ze_alloc_properties, ze_memory_allocation_properties_t, pageSize);

#define API __attribute__((visibility("default")))
#define PAGE_SIZE_64K ((size_t)64 << 10)

/* There is one driver. A handle is the address of one of these. */
struct _ze_driver_handle_t {
	int unused;
};
struct _ze_device_handle_t {
	int number;
};
struct _ze_context_handle_t {
	bool live;
};
struct _ze_command_list_handle_t {
	ze_context_handle_t context;
};

static struct _ze_driver_handle_t driver;
static struct _ze_device_handle_t device[16];
static bool initialised;

#define EXPORTABLE 1u /* allocated with an export descriptor */

#define ENTER(...)                                                                      \
	do {                                                                            \
		int forced;                                                             \
		core_lock();                                                            \
		forced = core_call(__func__, __VA_ARGS__);                              \
		if (forced || !initialised) {                                           \
			core_unlock();                                                  \
			return (ze_result_t)(forced ? forced : (int)ZE_RESULT_ERROR_UNINITIALIZED); \
		}                                                                       \
	} while (0)

#define LEAVE(result)                         \
	do {                                  \
		ze_result_t value = (result); \
		core_unlock();                \
		return value;                 \
	} while (0)

API ze_result_t zeInit(ze_init_flags_t flags)
{
	int forced;

	core_lock();
	forced = core_call(__func__, "%u", flags);
	if (!forced)
		initialised = true;
	core_unlock();
	return (ze_result_t)forced;
}

API ze_result_t zeDriverGet(uint32_t *n, ze_driver_handle_t *out)
{
	ENTER("%u", *n);
	if (*n && out)
		out[0] = &driver;
	*n = 1;
	LEAVE(ZE_RESULT_SUCCESS);
}

API ze_result_t zeDeviceGet(ze_driver_handle_t h, uint32_t *n, ze_device_handle_t *out)
{
	uint32_t have = (uint32_t)core_devices();

	ENTER("%u", *n);
	if (h != &driver)
		LEAVE(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
	for (uint32_t i = 0; i < have && i < *n && out; i++) {
		device[i].number = (int)i;
		out[i] = &device[i];
	}
	if (!*n || *n > have)
		*n = have;
	LEAVE(ZE_RESULT_SUCCESS);
}

API ze_result_t zeDeviceGetProperties(ze_device_handle_t d, ze_device_properties_t *p)
{
	ENTER("%d", d->number);
	if (p->stype != ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES || p->pNext)
		LEAVE(ZE_RESULT_ERROR_INVALID_ENUMERATION);
	p->type = ZE_DEVICE_TYPE_GPU;
	p->vendorId = 0x8086;
	p->maxMemAllocSize = (uint64_t)core_knob("DOUBLE_ZE_MAX", 1L << 29);
	core_uuid(d->number, p->uuid.id);
	snprintf(p->name, sizeof(p->name), "Level Zero Double %d", d->number);
	LEAVE(ZE_RESULT_SUCCESS);
}

API ze_result_t zeDeviceGetMemoryProperties(ze_device_handle_t d, uint32_t *n, ze_device_memory_properties_t *p)
{
	ENTER("%d", d->number);
	if (*n == 1 && (!p || p->stype != ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES))
		LEAVE(ZE_RESULT_ERROR_INVALID_ENUMERATION);
	if (*n)
		p->totalSize = core_total();
	*n = 1;
	LEAVE(ZE_RESULT_SUCCESS);
}

API ze_result_t zeDeviceGetExternalMemoryProperties(ze_device_handle_t d, ze_device_external_memory_properties_t *p)
{
	ENTER("%d", d->number);
	if (p->stype != ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES)
		LEAVE(ZE_RESULT_ERROR_INVALID_ENUMERATION);
	p->memoryAllocationExportTypes = core_knob("DOUBLE_ZE_DMABUF", 1) ? ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF : 0;
	LEAVE(ZE_RESULT_SUCCESS);
}

API ze_result_t zeDevicePciGetPropertiesExt(ze_device_handle_t d, ze_pci_ext_properties_t *p)
{
	char text[32];

	ENTER("%d", d->number);
	if (p->stype != ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES)
		LEAVE(ZE_RESULT_ERROR_INVALID_ENUMERATION);
	core_pci(d->number, text, sizeof(text));
	if (sscanf(text, "%x:%x:%x.%x", &p->address.domain, &p->address.bus, &p->address.device, &p->address.function) != 4)
		LEAVE(ZE_RESULT_ERROR_UNKNOWN);
	LEAVE(ZE_RESULT_SUCCESS);
}

API ze_result_t zeContextCreate(ze_driver_handle_t h, const ze_context_desc_t *d, ze_context_handle_t *out)
{
	ENTER("%s", "");
	if (h != &driver || d->stype != ZE_STRUCTURE_TYPE_CONTEXT_DESC)
		LEAVE(ZE_RESULT_ERROR_INVALID_ENUMERATION);
	*out = calloc(1, sizeof(**out));
	if (!*out)
		LEAVE(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
	(*out)->live = true;
	LEAVE(ZE_RESULT_SUCCESS);
}

/* A destroyed context stays allocated and marked: its use is an error, no crash. */
API ze_result_t zeContextDestroy(ze_context_handle_t c)
{
	ENTER("%s", "");
	if (!c->live)
		LEAVE(ZE_RESULT_ERROR_INVALID_ARGUMENT);
	c->live = false;
	LEAVE(ZE_RESULT_SUCCESS);
}

API ze_result_t zeCommandListCreateImmediate(ze_context_handle_t c, ze_device_handle_t d, const ze_command_queue_desc_t *q, ze_command_list_handle_t *out)
{
	ENTER("%d", d->number);
	if (!c->live || q->stype != ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC || q->mode != ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS)
		LEAVE(ZE_RESULT_ERROR_INVALID_ARGUMENT);
	*out = calloc(1, sizeof(**out));
	if (!*out)
		LEAVE(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
	(*out)->context = c;
	LEAVE(ZE_RESULT_SUCCESS);
}

API ze_result_t zeCommandListDestroy(ze_command_list_handle_t l)
{
	ENTER("%s", "");
	free(l);
	LEAVE(ZE_RESULT_SUCCESS);
}

API ze_result_t zeCommandListAppendMemoryCopy(ze_command_list_handle_t l, void *to, const void *from, size_t n, ze_event_handle_t e, uint32_t waits, ze_event_handle_t *events)
{
	bool ok;

	ENTER("%zu", n);
	if (!l->context->live || e || waits || events)
		LEAVE(ZE_RESULT_ERROR_INVALID_ARGUMENT);
	if (core_find((uintptr_t)to))
		ok = core_write((uintptr_t)to, from, n);
	else
		ok = core_read(to, (uintptr_t)from, n);
	LEAVE(ok ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

API ze_result_t zeCommandListAppendMemoryFill(ze_command_list_handle_t l, void *p, const void *pattern, size_t plen, size_t n, ze_event_handle_t e, uint32_t waits, ze_event_handle_t *events)
{
	ENTER("%zu", n);
	if (!l->context->live || plen != 1 || e || waits || events)
		LEAVE(ZE_RESULT_ERROR_INVALID_ARGUMENT);
	LEAVE(core_fill((uintptr_t)p, *(const unsigned char *)pattern, n) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

/* Memory for export has a block of its own; other memory comes from a pool. */
API ze_result_t zeMemAllocDevice(ze_context_handle_t c, const ze_device_mem_alloc_desc_t *d, size_t n, size_t align, ze_device_handle_t dev, void **out)
{
	const ze_external_memory_export_desc_t *e = d->pNext;
	struct area *a;
	bool export = false;

	ENTER("%zu %zu", n, align);
	if (!c->live || d->stype != ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC || d->ordinal || align & (align - 1))
		LEAVE(ZE_RESULT_ERROR_INVALID_ARGUMENT);
	if (e) {
		if (e->stype != ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC)
			LEAVE(ZE_RESULT_ERROR_INVALID_ENUMERATION);
		if (e->flags != ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF)
			LEAVE(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
		export = true;
	}
	if (!n || n > (size_t)core_knob("DOUBLE_ZE_MAX", 1L << 29))
		LEAVE(ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
	n = (n + PAGE_SIZE_64K - 1) & ~(PAGE_SIZE_64K - 1);
	a = core_alloc(n, dev->number, !export);
	if (!a)
		LEAVE(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
	a->owner = c;
	a->flags = export ? EXPORTABLE : 0;
	*out = (void *)(uintptr_t)a->addr;
	LEAVE(ZE_RESULT_SUCCESS);
}

/* The descriptors that DOUBLE_ZE_EXPORT=cached keeps, by block. */
static struct cached {
	struct block *block;
	int fd;
	struct cached *next;
} *cache;

static void forget(struct block *b)
{
	for (struct cached **at = &cache; *at; at = &(*at)->next) {
		struct cached *c = *at;

		if (c->block != b)
			continue;
		/* Only the library may close it: the number could be another file's by now. */
		if (fcntl(c->fd, F_GETFD) < 0)
			abort();
		close(c->fd);
		*at = c->next;
		free(c);
		return;
	}
}

API ze_result_t zeMemFree(ze_context_handle_t c, void *p)
{
	struct area *a;

	ENTER("%p", p);
	a = core_find((uintptr_t)p);
	if (!c->live || !a || a->addr != (uintptr_t)p || a->owner != c)
		LEAVE(ZE_RESULT_ERROR_INVALID_ARGUMENT);
	if (a->flags & EXPORTABLE)
		forget(a->block);
	core_remove(a);
	LEAVE(ZE_RESULT_SUCCESS);
}

static int export_fd(struct area *a)
{
	struct cached *c;
	int fd;

	if (!core_knob_is("DOUBLE_ZE_EXPORT", "cached"))
		return core_export_block(a);
	for (c = cache; c; c = c->next)
		if (c->block == a->block)
			return c->fd;
	fd = core_export_block(a);
	if (fd < 0)
		return fd;
	c = calloc(1, sizeof(*c));
	if (!c) {
		close(fd);
		return -ENOMEM;
	}
	c->block = a->block;
	c->fd = fd;
	c->next = cache;
	cache = c;
	return c->fd;
}

API ze_result_t zeMemGetAllocProperties(ze_context_handle_t c, const void *p, ze_memory_allocation_properties_t *out, ze_device_handle_t *dev)
{
	ze_external_memory_export_fd_t *e = out->pNext;
	struct area *a;
	int fd;

	ENTER("%p export %d", p, e != NULL);
	if (!c->live || out->stype != ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES)
		LEAVE(ZE_RESULT_ERROR_INVALID_ARGUMENT);
	a = core_find((uintptr_t)p);
	if (!a || a->owner != c) {
		out->type = ZE_MEMORY_TYPE_UNKNOWN;
		LEAVE(ZE_RESULT_SUCCESS);
	}
	out->type = (ze_memory_type_t)core_knob("DOUBLE_ZE_MEMORYTYPE", ZE_MEMORY_TYPE_DEVICE);
	out->id = a->addr;
	out->pageSize = PAGE_SIZE_64K;
	if (dev)
		*dev = &device[a->device];
	if (!e)
		LEAVE(ZE_RESULT_SUCCESS);
	if (e->stype != ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD || e->flags != ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF)
		LEAVE(ZE_RESULT_ERROR_INVALID_ENUMERATION);
	/* Real drivers also export memory that was not allocated for export. */
	if (core_knob("DOUBLE_ZE_STRICT", 0) && !(a->flags & EXPORTABLE))
		LEAVE(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
	if (core_knob("DOUBLE_ZE_NO_FD", 0))
		LEAVE(ZE_RESULT_SUCCESS);
	fd = export_fd(a);
	if (fd < 0)
		LEAVE(fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY : ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
	e->fd = fd;
	LEAVE(ZE_RESULT_SUCCESS);
}

API ze_result_t zeMemGetAddressRange(ze_context_handle_t c, const void *p, void **base, size_t *n)
{
	struct area *a;

	ENTER("%p", p);
	a = core_find((uintptr_t)p);
	if (!c->live || !a || a->owner != c)
		LEAVE(ZE_RESULT_ERROR_INVALID_ARGUMENT);
	*base = (void *)(uintptr_t)a->addr;
	*n = a->size;
	LEAVE(ZE_RESULT_SUCCESS);
}
