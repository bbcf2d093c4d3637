/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A double of libnvidia-ml: two GPUs, of which the second has no BAR 1.
 * GPURDMA_NVML_FAIL=NAME:CODE makes one function fail, GPURDMA_NVML_CC=1 turns
 * confidential computing on, GPURDMA_NVML_P2P=CODE is the status of writes between GPUs.
 * GPURDMA_NVML_PCI=D:B:D.F is where the first GPU is, GPURDMA_NVML_BAR1=TOTAL:USED
 * its BAR 1 in bytes.
 * Without OLD, it also has the functions of newer versions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_SUPPORTED 3
#define API __attribute__((visibility("default")))

struct pci_info {
	char legacy[16];
	unsigned int domain, bus, device, id, subsystem;
	char bus_id[32];
};

struct memory { unsigned long long total, free, used; };

static int fails(const char *name)
{
	const char *env = getenv("GPURDMA_NVML_FAIL");
	size_t n = strlen(name);

	return env && !strncmp(env, name, n) && env[n] == ':' ? atoi(env + n + 1) : 0;
}

#define MAY_FAIL(name) do { int code = fails(name); if (code) return code; } while (0)

API int nvmlInit_v2(void) { MAY_FAIL("nvmlInit"); return 0; }
API int nvmlInit(void) { return nvmlInit_v2(); }
API int nvmlShutdown(void) { MAY_FAIL("nvmlShutdown"); return 0; }
API const char *nvmlErrorString(int code) { return code == 4 ? "Insufficient Permissions" : "Some Error"; }

API int nvmlDeviceGetCount_v2(unsigned int *n)
{
	MAY_FAIL("nvmlDeviceGetCount");
	*n = 2;
	return 0;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **device)
{
	MAY_FAIL("nvmlDeviceGetHandleByIndex");
	*device = (void *)(unsigned long)(i + 1);
	return 0;
}

API int nvmlDeviceGetName(void *device, char *name, unsigned int length)
{
	MAY_FAIL("nvmlDeviceGetName");
	snprintf(name, length, "Double %lu", (unsigned long)device);
	return 0;
}

API int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length)
{
	MAY_FAIL("nvmlDeviceGetUUID");
	snprintf(uuid, length, "GPU-00000000-0000-0000-0000-00000000000%lu", (unsigned long)device);
	return 0;
}

API int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info)
{
	const char *env = getenv("GPURDMA_NVML_PCI");

	MAY_FAIL("nvmlDeviceGetPciInfo");
	memset(info, 0, sizeof(*info));
	info->domain = 0x10000;
	info->bus = 0x40 + (unsigned long)device;
	if (device == (void *)1 && env)
		sscanf(env, "%x:%x:%x", &info->domain, &info->bus, &info->device);
	return 0;
}

API int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
	(void)device;
	MAY_FAIL("nvmlDeviceGetMemoryInfo");
	*memory = (struct memory){ 80ULL << 30, 79ULL << 30, 1ULL << 30 };
	return 0;
}

API int nvmlDeviceGetBAR1MemoryInfo(void *device, struct memory *bar)
{
	const char *env = getenv("GPURDMA_NVML_BAR1");

	MAY_FAIL("nvmlDeviceGetBAR1MemoryInfo");
	if (device != (void *)1)
		return NOT_SUPPORTED;
	/* total, free, used: the same order as above */
	*bar = (struct memory){ 256ULL << 20, 255ULL << 20, 1ULL << 20 };
	if (env && sscanf(env, "%llu:%llu", &bar->total, &bar->used) == 2)
		bar->free = bar->total - bar->used;
	return 0;
}

#ifndef OLD
struct conf_state { unsigned int environment, feature, tools; };

API int nvmlSystemGetConfComputeState(struct conf_state *state)
{
	const char *env = getenv("GPURDMA_NVML_CC");

	MAY_FAIL("nvmlSystemGetConfComputeState");
	*state = (struct conf_state){ 2, env ? atoi(env) : 0, 0 };
	return 0;
}

API int nvmlDeviceGetP2PStatus(void *a, void *b, int index, int *status)
{
	const char *env = getenv("GPURDMA_NVML_P2P");

	(void)a;
	(void)b;
	MAY_FAIL("nvmlDeviceGetP2PStatus");
	*status = index == 1 && env ? atoi(env) : 0;
	return 0;
}
#endif
