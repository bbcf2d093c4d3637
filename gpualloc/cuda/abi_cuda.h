/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the CUDA driver API that this package uses, declared anew so that
 * the build needs no toolkit. Names are cuda.h's, with the prefix gpurdma_.
 * Functions with a _v2 are those that cuda.h's macros choose: the names without
 * are an older API with 32-bit sizes.
 */
#ifndef GPURDMA_ABI_CUDA_H
#define GPURDMA_ABI_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int gpurdma_CUresult;
typedef int gpurdma_CUdevice;
typedef struct gpurdma_CUctx *gpurdma_CUcontext;
typedef unsigned long long gpurdma_CUdeviceptr;
typedef unsigned long long gpurdma_CUmemGenericAllocationHandle;

enum {
	GPURDMA_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
	GPURDMA_CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
	GPURDMA_CU_MEM_ALLOCATION_TYPE_PINNED = 1,
	GPURDMA_CU_MEM_LOCATION_TYPE_DEVICE = 1,
	GPURDMA_CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
	GPURDMA_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX = 0,
	GPURDMA_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER = 100,
};

typedef struct {
	unsigned char bytes[16];
} gpurdma_CUuuid;

typedef struct {
	int type; /* CUmemLocationType */
	int id;
} gpurdma_CUmemLocation;

typedef struct {
	int type;                 /* CUmemAllocationType */
	int requestedHandleTypes; /* CUmemAllocationHandleType */
	gpurdma_CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType;
		unsigned char gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} gpurdma_CUmemAllocationProp;

typedef struct {
	gpurdma_CUmemLocation location;
	int flags; /* CUmemAccess_flags */
} gpurdma_CUmemAccessDesc;

_Static_assert(sizeof(gpurdma_CUmemAllocationProp) == 32, "CUmemAllocationProp");
_Static_assert(offsetof(gpurdma_CUmemAllocationProp, allocFlags) == 24, "allocFlags");
_Static_assert(sizeof(gpurdma_CUmemAccessDesc) == 12, "CUmemAccessDesc");

/* The functions, as found in one loaded library. NULL: not there. */
struct gpurdma_cuda {
	gpurdma_CUresult (*cuInit)(unsigned int);
	gpurdma_CUresult (*cuDriverGetVersion)(int *);
	gpurdma_CUresult (*cuDeviceGetCount)(int *);
	gpurdma_CUresult (*cuDeviceGet)(gpurdma_CUdevice *, int);
	gpurdma_CUresult (*cuDeviceGetName)(char *, int, gpurdma_CUdevice);
	gpurdma_CUresult (*cuDeviceGetUuid)(gpurdma_CUuuid *, gpurdma_CUdevice);
	gpurdma_CUresult (*cuDeviceGetUuid_v2)(gpurdma_CUuuid *, gpurdma_CUdevice);
	gpurdma_CUresult (*cuDeviceGetPCIBusId)(char *, int, gpurdma_CUdevice);
	gpurdma_CUresult (*cuDeviceTotalMem)(size_t *, gpurdma_CUdevice);
	gpurdma_CUresult (*cuDeviceGetAttribute)(int *, int, gpurdma_CUdevice);
	gpurdma_CUresult (*cuDevicePrimaryCtxRetain)(gpurdma_CUcontext *, gpurdma_CUdevice);
	gpurdma_CUresult (*cuDevicePrimaryCtxRelease)(gpurdma_CUdevice);
	gpurdma_CUresult (*cuCtxPushCurrent)(gpurdma_CUcontext);
	gpurdma_CUresult (*cuCtxPopCurrent)(gpurdma_CUcontext *);
	gpurdma_CUresult (*cuCtxSynchronize)(void);
	gpurdma_CUresult (*cuMemGetInfo)(size_t *, size_t *);
	gpurdma_CUresult (*cuMemAlloc)(gpurdma_CUdeviceptr *, size_t);
	gpurdma_CUresult (*cuMemFree)(gpurdma_CUdeviceptr);
	gpurdma_CUresult (*cuMemGetAddressRange)(gpurdma_CUdeviceptr *, size_t *, gpurdma_CUdeviceptr);
	gpurdma_CUresult (*cuPointerGetAttribute)(void *, int, gpurdma_CUdeviceptr);
	gpurdma_CUresult (*cuPointerSetAttribute)(const void *, int, gpurdma_CUdeviceptr);
	gpurdma_CUresult (*cuMemsetD8)(gpurdma_CUdeviceptr, unsigned char, size_t);
	gpurdma_CUresult (*cuMemcpyDtoH)(void *, gpurdma_CUdeviceptr, size_t);
	gpurdma_CUresult (*cuMemcpyHtoD)(gpurdma_CUdeviceptr, const void *, size_t);
	gpurdma_CUresult (*cuMemGetHandleForAddressRange)(void *, gpurdma_CUdeviceptr, size_t, int, unsigned long long);
	gpurdma_CUresult (*cuFlushGPUDirectRDMAWrites)(int, int);
	gpurdma_CUresult (*cuMemGetAllocationGranularity)(size_t *, const gpurdma_CUmemAllocationProp *, int);
	gpurdma_CUresult (*cuMemCreate)(gpurdma_CUmemGenericAllocationHandle *, size_t, const gpurdma_CUmemAllocationProp *, unsigned long long);
	gpurdma_CUresult (*cuMemRelease)(gpurdma_CUmemGenericAllocationHandle);
	gpurdma_CUresult (*cuMemAddressReserve)(gpurdma_CUdeviceptr *, size_t, size_t, gpurdma_CUdeviceptr, unsigned long long);
	gpurdma_CUresult (*cuMemAddressFree)(gpurdma_CUdeviceptr, size_t);
	gpurdma_CUresult (*cuMemMap)(gpurdma_CUdeviceptr, size_t, size_t, gpurdma_CUmemGenericAllocationHandle, unsigned long long);
	gpurdma_CUresult (*cuMemUnmap)(gpurdma_CUdeviceptr, size_t);
	gpurdma_CUresult (*cuMemSetAccess)(gpurdma_CUdeviceptr, size_t, const gpurdma_CUmemAccessDesc *, size_t);
};

#endif
