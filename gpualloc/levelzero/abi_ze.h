/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of Level Zero that this package uses, declared anew so that the
 * build needs no header. Names are ze_api.h's, with the prefix gpurdma_.
 * testbed/doubles/ze.c compares the numbers and layouts with Debian's header
 * when it is compiled.
 */
#ifndef GPURDMA_ABI_ZE_H
#define GPURDMA_ABI_ZE_H

#include <stddef.h>
#include <stdint.h>

typedef int gpurdma_ze_result;
typedef struct gpurdma_ze_driver *gpurdma_ze_driver_handle;
typedef struct gpurdma_ze_device *gpurdma_ze_device_handle;
typedef struct gpurdma_ze_context *gpurdma_ze_context_handle;
typedef struct gpurdma_ze_list *gpurdma_ze_list_handle;

enum {
	GPURDMA_ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES = 0x3,
	GPURDMA_ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES = 0x7,
	GPURDMA_ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES = 0xc,
	GPURDMA_ZE_STRUCTURE_TYPE_CONTEXT_DESC = 0xd,
	GPURDMA_ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC = 0xe,
	GPURDMA_ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC = 0x15,
	GPURDMA_ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES = 0x17,
	GPURDMA_ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC = 0x18,
	GPURDMA_ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD = 0x1a,
	GPURDMA_ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES = 0x10008,
	GPURDMA_ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF = 2,
	GPURDMA_ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS = 1,
	GPURDMA_ZE_DEVICE_TYPE_GPU = 1,
	GPURDMA_ZE_MEMORY_TYPE_UNKNOWN = 0,
	GPURDMA_ZE_MEMORY_TYPE_HOST = 1,
	GPURDMA_ZE_MEMORY_TYPE_DEVICE = 2,
	GPURDMA_ZE_MEMORY_TYPE_SHARED = 3,
};

typedef struct {
	int stype;
	void *pNext;
	int type;
	uint32_t vendorId, deviceId;
	uint32_t flags;
	uint32_t subdeviceId;
	uint32_t coreClockRate;
	uint64_t maxMemAllocSize;
	uint32_t maxHardwareContexts, maxCommandQueuePriority, numThreadsPerEU, physicalEUSimdWidth;
	uint32_t numEUsPerSubslice, numSubslicesPerSlice, numSlices;
	uint64_t timerResolution;
	uint32_t timestampValidBits, kernelTimestampValidBits;
	uint8_t uuid[16];
	char name[256];
} gpurdma_ze_device_properties;

typedef struct {
	int stype;
	void *pNext;
	uint32_t domain, bus, device, function; /* ze_pci_address_ext_t */
	int32_t genVersion, width;              /* ze_pci_speed_ext_t */
	int64_t maxBandwidth;
} gpurdma_ze_pci_properties;

typedef struct {
	int stype;
	void *pNext;
	uint32_t memoryAllocationImportTypes, memoryAllocationExportTypes;
	uint32_t imageImportTypes, imageExportTypes;
} gpurdma_ze_external_properties;

typedef struct {
	int stype;
	void *pNext;
	uint32_t flags;
	uint32_t maxClockRate, maxBusWidth;
	uint64_t totalSize;
	char name[256];
} gpurdma_ze_memory_properties;

typedef struct {
	int stype;
	const void *pNext;
	uint32_t flags;
} gpurdma_ze_context_desc;

typedef struct {
	int stype;
	const void *pNext;
	uint32_t ordinal, index;
	uint32_t flags;
	int mode, priority;
} gpurdma_ze_queue_desc;

typedef struct {
	int stype;
	const void *pNext;
	uint32_t flags;
	uint32_t ordinal;
} gpurdma_ze_alloc_desc;

typedef struct {
	int stype;
	const void *pNext;
	uint32_t flags;
} gpurdma_ze_export_desc;

typedef struct {
	int stype;
	const void *pNext;
	uint32_t flags;
	int fd;
} gpurdma_ze_export_fd;

typedef struct {
	int stype;
	void *pNext;
	int type;
	uint64_t id;
	uint64_t pageSize;
} gpurdma_ze_alloc_properties;

/* The functions, as found in one loaded library. NULL: not there. */
struct gpurdma_ze {
	gpurdma_ze_result (*zeInit)(uint32_t);
	gpurdma_ze_result (*zeDriverGet)(uint32_t *, gpurdma_ze_driver_handle *);
	gpurdma_ze_result (*zeDeviceGet)(gpurdma_ze_driver_handle, uint32_t *, gpurdma_ze_device_handle *);
	gpurdma_ze_result (*zeDeviceGetProperties)(gpurdma_ze_device_handle, gpurdma_ze_device_properties *);
	gpurdma_ze_result (*zeDeviceGetMemoryProperties)(gpurdma_ze_device_handle, uint32_t *, gpurdma_ze_memory_properties *);
	gpurdma_ze_result (*zeDeviceGetExternalMemoryProperties)(gpurdma_ze_device_handle, gpurdma_ze_external_properties *);
	gpurdma_ze_result (*zeDevicePciGetPropertiesExt)(gpurdma_ze_device_handle, gpurdma_ze_pci_properties *);
	gpurdma_ze_result (*zeContextCreate)(gpurdma_ze_driver_handle, const gpurdma_ze_context_desc *, gpurdma_ze_context_handle *);
	gpurdma_ze_result (*zeCommandListCreateImmediate)(gpurdma_ze_context_handle, gpurdma_ze_device_handle, const gpurdma_ze_queue_desc *, gpurdma_ze_list_handle *);
	gpurdma_ze_result (*zeCommandListDestroy)(gpurdma_ze_list_handle);
	gpurdma_ze_result (*zeCommandListAppendMemoryCopy)(gpurdma_ze_list_handle, void *, const void *, size_t, void *, uint32_t, void *);
	gpurdma_ze_result (*zeCommandListAppendMemoryFill)(gpurdma_ze_list_handle, void *, const void *, size_t, size_t, void *, uint32_t, void *);
	gpurdma_ze_result (*zeMemAllocDevice)(gpurdma_ze_context_handle, const gpurdma_ze_alloc_desc *, size_t, size_t, gpurdma_ze_device_handle, void **);
	gpurdma_ze_result (*zeMemFree)(gpurdma_ze_context_handle, void *);
	gpurdma_ze_result (*zeMemGetAllocProperties)(gpurdma_ze_context_handle, const void *, gpurdma_ze_alloc_properties *, gpurdma_ze_device_handle *);
	gpurdma_ze_result (*zeMemGetAddressRange)(gpurdma_ze_context_handle, const void *, void **, size_t *);
};

#endif
