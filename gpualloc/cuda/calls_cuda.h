/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls through the table. Those that need a context make it current around
 * the call, within one crossing from Go: each thread has a current context of
 * its own, and a crossing stays on one thread.
 */
#ifndef GPURDMA_CALLS_CUDA_H
#define GPURDMA_CALLS_CUDA_H

#include "abi_cuda.h"

#define GPURDMA_IN(a, ctx, call)                                       \
	do {                                                           \
		gpurdma_CUcontext gone;                                \
		gpurdma_CUresult in = (a)->cuCtxPushCurrent(ctx), out; \
		if (in)                                                \
			return in;                                     \
		in = (call);                                           \
		out = (a)->cuCtxPopCurrent(&gone);                     \
		return in ? in : out;                                  \
	} while (0)

typedef const struct gpurdma_cuda *gpurdma_api;

static inline int gpurdma_cuInit(gpurdma_api a) { return a->cuInit(0); }
static inline int gpurdma_cuDriverGetVersion(gpurdma_api a, int *v) { return a->cuDriverGetVersion(v); }
static inline int gpurdma_cuDeviceGetCount(gpurdma_api a, int *n) { return a->cuDeviceGetCount(n); }
static inline int gpurdma_cuDeviceGet(gpurdma_api a, int *dev, int ordinal) { return a->cuDeviceGet(dev, ordinal); }
static inline int gpurdma_cuDeviceGetName(gpurdma_api a, char *name, int len, int dev) { return a->cuDeviceGetName(name, len, dev); }
static inline int gpurdma_cuDeviceGetUuid(gpurdma_api a, gpurdma_CUuuid *id, int dev) { return a->cuDeviceGetUuid(id, dev); }
static inline int gpurdma_cuDeviceGetUuid_v2(gpurdma_api a, gpurdma_CUuuid *id, int dev) { return a->cuDeviceGetUuid_v2(id, dev); }
static inline int gpurdma_cuDeviceGetPCIBusId(gpurdma_api a, char *id, int len, int dev) { return a->cuDeviceGetPCIBusId(id, len, dev); }
static inline int gpurdma_cuDeviceTotalMem(gpurdma_api a, size_t *n, int dev) { return a->cuDeviceTotalMem(n, dev); }
static inline int gpurdma_cuDeviceGetAttribute(gpurdma_api a, int *v, int attr, int dev) { return a->cuDeviceGetAttribute(v, attr, dev); }
static inline int gpurdma_cuDevicePrimaryCtxRelease(gpurdma_api a, int dev) { return a->cuDevicePrimaryCtxRelease(dev); }

static inline int gpurdma_cuDevicePrimaryCtxRetain(gpurdma_api a, uintptr_t *ctx, int dev)
{
	gpurdma_CUcontext c = NULL;
	int r = a->cuDevicePrimaryCtxRetain(&c, dev);

	*ctx = (uintptr_t)c;
	return r;
}

#define GPURDMA_CTX(ctx) ((gpurdma_CUcontext)(ctx))

static inline int gpurdma_cuMemGetInfo(gpurdma_api a, uintptr_t ctx, size_t *avail, size_t *total)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuMemGetInfo(avail, total));
}

static inline int gpurdma_cuMemAlloc(gpurdma_api a, uintptr_t ctx, gpurdma_CUdeviceptr *p, size_t n)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuMemAlloc(p, n));
}

static inline int gpurdma_cuMemFree(gpurdma_api a, uintptr_t ctx, gpurdma_CUdeviceptr p)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuMemFree(p));
}

static inline int gpurdma_cuMemGetAddressRange(gpurdma_api a, uintptr_t ctx, gpurdma_CUdeviceptr *base, size_t *n, gpurdma_CUdeviceptr p)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuMemGetAddressRange(base, n, p));
}

/* Reads the attributes without a context: the pointer may belong to another one. */
static inline int gpurdma_cuPointerGetAttribute(gpurdma_api a, void *v, int attr, gpurdma_CUdeviceptr p)
{
	return a->cuPointerGetAttribute(v, attr, p);
}

static inline int gpurdma_cuPointerSetAttribute(gpurdma_api a, uintptr_t ctx, const void *v, int attr, gpurdma_CUdeviceptr p)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuPointerSetAttribute(v, attr, p));
}

/*
 * Copies and fills wait until the device has done them: a copy out of pageable
 * memory may return while its last piece is still on the way.
 */
static inline int gpurdma_done(gpurdma_api a, int r) { return r ? r : a->cuCtxSynchronize(); }

static inline int gpurdma_cuMemsetD8(gpurdma_api a, uintptr_t ctx, gpurdma_CUdeviceptr p, unsigned char v, size_t n)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), gpurdma_done(a, a->cuMemsetD8(p, v, n)));
}

static inline int gpurdma_cuMemcpyDtoH(gpurdma_api a, uintptr_t ctx, void *to, gpurdma_CUdeviceptr from, size_t n)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), gpurdma_done(a, a->cuMemcpyDtoH(to, from, n)));
}

static inline int gpurdma_cuMemcpyHtoD(gpurdma_api a, uintptr_t ctx, gpurdma_CUdeviceptr to, const void *from, size_t n)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), gpurdma_done(a, a->cuMemcpyHtoD(to, from, n)));
}

static inline int gpurdma_cuMemGetHandleForAddressRange(gpurdma_api a, uintptr_t ctx, int *fd, gpurdma_CUdeviceptr p, size_t n, unsigned long long flags)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuMemGetHandleForAddressRange(fd, p, n, GPURDMA_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags));
}

/* For the GPU that owns the memory: the narrowest scope, and the least to wait for. */
static inline int gpurdma_cuFlushGPUDirectRDMAWrites(gpurdma_api a, uintptr_t ctx)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuFlushGPUDirectRDMAWrites(GPURDMA_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, GPURDMA_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
}

/* The properties for cuMemCreate: pinned memory of one device, also for RDMA if rdma. */
static inline gpurdma_CUmemAllocationProp gpurdma_prop(int dev, int rdma)
{
	gpurdma_CUmemAllocationProp p = {
		.type = GPURDMA_CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = GPURDMA_CU_MEM_LOCATION_TYPE_DEVICE, .id = dev },
		.allocFlags = { .gpuDirectRDMACapable = (unsigned char)rdma },
	};
	return p;
}

static inline int gpurdma_cuMemGetAllocationGranularity(gpurdma_api a, size_t *n, int dev, int rdma)
{
	gpurdma_CUmemAllocationProp p = gpurdma_prop(dev, rdma);

	return a->cuMemGetAllocationGranularity(n, &p, GPURDMA_CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

static inline int gpurdma_cuMemCreate(gpurdma_api a, uintptr_t ctx, unsigned long long *handle, size_t n, int dev, int rdma)
{
	gpurdma_CUmemAllocationProp p = gpurdma_prop(dev, rdma);

	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuMemCreate(handle, n, &p, 0));
}

static inline int gpurdma_cuMemRelease(gpurdma_api a, unsigned long long handle) { return a->cuMemRelease(handle); }

static inline int gpurdma_cuMemAddressReserve(gpurdma_api a, uintptr_t ctx, gpurdma_CUdeviceptr *p, size_t n)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuMemAddressReserve(p, n, 0, 0, 0));
}

static inline int gpurdma_cuMemAddressFree(gpurdma_api a, uintptr_t ctx, gpurdma_CUdeviceptr p, size_t n)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuMemAddressFree(p, n));
}

static inline int gpurdma_cuMemMap(gpurdma_api a, uintptr_t ctx, gpurdma_CUdeviceptr p, size_t n, unsigned long long handle)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuMemMap(p, n, 0, handle, 0));
}

static inline int gpurdma_cuMemUnmap(gpurdma_api a, uintptr_t ctx, gpurdma_CUdeviceptr p, size_t n)
{
	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuMemUnmap(p, n));
}

static inline int gpurdma_cuMemSetAccess(gpurdma_api a, uintptr_t ctx, gpurdma_CUdeviceptr p, size_t n, int dev)
{
	gpurdma_CUmemAccessDesc d = {
		.location = { .type = GPURDMA_CU_MEM_LOCATION_TYPE_DEVICE, .id = dev },
		.flags = GPURDMA_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	GPURDMA_IN(a, GPURDMA_CTX(ctx), a->cuMemSetAccess(p, n, &d, 1));
}

#endif
