// SPDX-License-Identifier: GPL-2.0
/* Every exporter behaviour against every kind of importer, near and far. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "testlib.h"

static const char *const kinds[] = { "static", "pinned", "revocable", "dynamic" };

static void become(struct gpu *gpu, const char *behaviour)
{
	check_errno(gpu_put(gpu, "behaviour", "%s", behaviour), 0);
}

static void fill(struct buffer *buf, unsigned char *bytes, size_t size, size_t offset)
{
	nonce(bytes, size);
	memcpy(buf->map + offset, bytes, size);
}

/*
 * The lengths add up to the buffer. Addresses of VRAM are the BAR's, unless an
 * IOMMU translates for the device; those of system memory are never the BAR's.
 */
static void check_segments(struct buffer *buf, const struct testimporter_segment *segs, int n,
			   const char *device, bool vram)
{
	bool iova = translated(device);
	uint64_t offset = vram ? buffer_count(buf, "offset") : 0, total = 0;
	int i;

	for (i = 0; i < n; i++) {
		bool page = segs[i].flags & TESTIMPORTER_SEGMENT_PAGE;

		if (vram && iova)
			check(!page);
		else if (vram)
			check(!page && segs[i].addr == buf->gpu->bar + offset + total,
			      "segment %d is at %#llx, the buffer at %#llx", i,
			      (unsigned long long)segs[i].addr,
			      (unsigned long long)(buf->gpu->bar + offset + total));
		else
			check(segs[i].addr < buf->gpu->bar ||
			      segs[i].addr >= buf->gpu->bar + buf->gpu->bar_size);
		total += segs[i].length;
	}
	check(total == buf->size, "%llu bytes are mapped", (unsigned long long)total);
}

/* The device moves bytes both ways at its addresses, and the CPU sees them. */
static void check_dma(struct buffer *buf, int imp, int id)
{
	unsigned char bytes[256], back[256];

	nonce(bytes, sizeof(bytes));
	check_errno(importer_transfer(imp, true, id, true, 8192 + 16, bytes, sizeof(bytes)), 0);
	check(!memcmp(buf->map + 8192 + 16, bytes, sizeof(bytes)), "DMA wrote elsewhere");
	fill(buf, bytes, sizeof(bytes), 100000);
	check_errno(importer_transfer(imp, true, id, false, 100000, back, sizeof(back)), 0);
	check(!memcmp(back, bytes, sizeof(bytes)), "DMA read elsewhere");
}

/* Whether amdgpu and xe put a buffer into VRAM for this importer. */
static bool expect_vram(bool rule_vram, unsigned int kind, bool peer, bool core_pins)
{
	bool pinned = kind != TESTIMPORTER_DYNAMIC || core_pins;

	return peer && (!pinned || rule_vram);
}

static void one_importer(struct gpu *gpu, int imp, const char *device, unsigned int kind,
			 bool p2p, bool rule_vram, bool core_pins, bool dma)
{
	struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM | VISIBLE);
	bool peer = p2p && importer_distance(imp, gpu->bdf, device) >= 0;
	bool vram = expect_vram(rule_vram, kind, peer, core_pins);
	struct testimporter_segment segs[256];
	struct testimporter_state state;
	int id, n;

	id = importer_attach(imp, device, buf->fd, kind, p2p);
	check(id > 0, "attach: %s", strerror(-id));
	n = importer_map(imp, id, segs, 256);
	check(n > 0, "map by a %s importer: %s", kinds[kind], strerror(-n));
	state = importer_state(imp, id);
	check(state.peer2peer == peer, "peer2peer is %u", state.peer2peer);
	check(state.mapped && state.size == buf->size);
	check_place(buf, vram ? "vram" : "system");
	check_segments(buf, segs, n, device, vram);
	if (dma)
		check_dma(buf, imp, id);
	check_errno(importer_detach(imp, id), 0);
	check(!buffer_count(buf, "pins") && !buffer_count(buf, "attachments"));
	buffer_free(buf);
}

/* Up to 6.12 without CONFIG_DMABUF_MOVE_NOTIFY the core pins for each map. */
static bool core_pins(struct gpu *gpu, int imp)
{
	struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	int id = importer_attach(imp, far_edu, buf->fd, TESTIMPORTER_DYNAMIC, true);
	bool pins;

	check(id > 0);
	check(importer_map(imp, id, NULL, 0) > 0);
	pins = buffer_count(buf, "pins") > 0;
	check_errno(importer_detach(imp, id), 0);
	buffer_free(buf);
	return pins;
}

static void matrix(struct gpu *gpu, int imp, const char *device)
{
	bool pins = core_pins(gpu, imp);
	unsigned int kind;
	int p2p, rule;

	for (rule = 0; rule < 2; rule++) {
		check_errno(gpu_put(gpu, "pin_rule", rule ? "vram" : "system"), 0);
		for (kind = TESTIMPORTER_STATIC; kind <= TESTIMPORTER_DYNAMIC; kind++)
			for (p2p = 0; p2p < (kind == TESTIMPORTER_STATIC ? 1 : 2); p2p++)
				one_importer(gpu, imp, device, kind, p2p, rule, pins,
					     p2p && strcmp(device, TESTIMPORTER_SOFT));
	}
}

static void test_ttm(struct gpu *gpu)
{
	static const char *const behaviours[] = { "amdgpu", "xe" };
	int imp = importer_open(), i;

	for (i = 0; i < 2; i++) {
		become(gpu, behaviours[i]);
		matrix(gpu, imp, near_edu);
		matrix(gpu, imp, far_edu);
		matrix(gpu, imp, TESTIMPORTER_SOFT);
	}
	close(imp);
}

/* A VRAM-only buffer: xe refuses importers that are not peer to peer. */
static void test_vram_only(struct gpu *gpu)
{
	int imp = importer_open(), id;
	struct buffer *buf;

	if (strcmp(gpu->personality, "xe"))
		not_here("a test of the personality xe");
	become(gpu, "xe");
	buf = buffer_new(gpu, MIB, VRAM);
	check_errno(importer_attach(imp, far_edu, buf->fd, TESTIMPORTER_PINNED, true),
		    -EOPNOTSUPP);
	check_errno(importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_STATIC, false),
		    -EOPNOTSUPP);
	if (kernel_has_p2p(imp, gpu)) {
		id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_DYNAMIC, true);
		check(id > 0);
		check(importer_map(imp, id, NULL, 0) == 1);
		check_place(buf, "vram");
	}
	close(imp);
	buffer_free(buf);
}

/* An importer that is not peer to peer moves the buffer out of VRAM for all. */
static void test_demotion(struct gpu *gpu)
{
	int imp = importer_open(), near_id, far_id;
	unsigned char bytes[128], back[128];
	struct testimporter_state state;
	struct buffer *buf;

	become(gpu, "amdgpu");
	check_errno(gpu_put(gpu, "pin_rule", "vram"), 0);
	if (!kernel_has_p2p(imp, gpu))
		not_here("this kernel has no peer-to-peer DMA");
	if (importer_distance(imp, gpu->bdf, far_edu) >= 0)
		not_here("every device is peer to peer on this processor");
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	near_id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_DYNAMIC, true);
	check(near_id > 0 && importer_map(imp, near_id, NULL, 0) == 1);
	check_place(buf, "vram");
	far_id = importer_attach(imp, far_edu, buf->fd, TESTIMPORTER_PINNED, true);
	check(far_id > 0 && importer_map(imp, far_id, NULL, 0) > 0);
	check_place(buf, "system");
	state = importer_state(imp, near_id);
	check(state.invalidations == 1 && !state.mapped);
	fill(buf, bytes, sizeof(bytes), 4096);
	check_errno(importer_transfer(imp, true, near_id, false, 4096, back, sizeof(back)), 0);
	check(!memcmp(bytes, back, sizeof(back)));
	check(importer_state(imp, near_id).maps == 2);
	check_errno(importer_detach(imp, far_id), 0);
	check_errno(importer_detach(imp, near_id), 0);

	/* A buffer pinned in VRAM cannot leave it: the second pin fails. */
	near_id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_PINNED, true);
	check(near_id > 0 && importer_map(imp, near_id, NULL, 0) == 1);
	check_place(buf, "vram");
	far_id = importer_attach(imp, far_edu, buf->fd, TESTIMPORTER_PINNED, true);
	check(far_id > 0);
	check_errno(importer_map(imp, far_id, NULL, 0), -EINVAL);
	close(imp);
	buffer_free(buf);
}

/* A move notifies each attached importer, whether it has mapped or not. */
static void test_told(struct gpu *gpu)
{
	static const char *const behaviours[] = { "amdgpu", "xe" };
	int imp = importer_open(), id, i;
	unsigned long long inode;
	struct buffer *buf;

	for (i = 0; i < 2; i++) {
		become(gpu, behaviours[i]);
		buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
		inode = buf->inode;
		buf->map[0] = 1;
		check_place(buf, "vram");
		id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_DYNAMIC, true);
		check(id > 0);
		check_errno(gpu_put(gpu, "evict", "%llu", inode), 0);
		check(importer_state(imp, id).invalidations == 1, "no notice of the eviction");
		check_errno(gpu_put(gpu, "restore", "%llu", inode), 0);
		check_place(buf, "vram");
		check(importer_state(imp, id).invalidations == 2, "no notice of the move back");
		/* Without a move the exporter sends no notice. */
		check_errno(gpu_put(gpu, "restore", "%llu", inode), 0);
		check(importer_state(imp, id).invalidations == 2);
		check_errno(importer_detach(imp, id), 0);
		buffer_free(buf);
	}
	close(imp);
}

static void power(struct gpu *gpu, const char *file, char *text, size_t size)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/power/%s", gpu->bdf, file);
	get(path, text, size);
}

static void set_power(struct gpu *gpu, const char *control)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/power/control", gpu->bdf);
	check_errno(put(path, "%s", control), 0);
}

static bool asleep(void *gpu)
{
	char status[32];

	power(gpu, "runtime_status", status, sizeof(status));
	return !strcmp(status, "suspended");
}

/*
 * A sleeping GPU: amdgpu does not wake it and gives no peer-to-peer; xe wakes
 * it. Until the detach amdgpu keeps it awake for a peer, xe for any importer.
 */
static void test_suspended(struct gpu *gpu)
{
	int imp = importer_open(), id;
	bool p2p = kernel_has_p2p(imp, gpu);
	struct buffer *buf;

	become(gpu, "amdgpu");
	check_errno(gpu_put(gpu, "pin_rule", "vram"), 0);
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	set_power(gpu, "auto");
	eventually(asleep, gpu, "the GPU does not sleep");
	id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_PINNED, true);
	check(id > 0 && importer_map(imp, id, NULL, 0) > 0);
	check(!importer_state(imp, id).peer2peer, "peer to peer with a GPU that sleeps");
	check_place(buf, "system");
	check(asleep(gpu));
	check_errno(importer_detach(imp, id), 0);

	set_power(gpu, "on");
	check(!asleep(gpu));
	id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_PINNED, true);
	set_power(gpu, "auto");
	check(id > 0 && importer_map(imp, id, NULL, 0) > 0);
	check(importer_state(imp, id).peer2peer == p2p);
	check_place(buf, p2p ? "vram" : "system");
	if (p2p)
		check_dma(buf, imp, id);
	/* The DMA takes long enough for an idle GPU to suspend. */
	check(!p2p || !asleep(gpu), "the GPU sleeps while a peer is attached");
	check_errno(importer_detach(imp, id), 0);
	eventually(asleep, gpu, "no importer is attached, and the GPU does not sleep");
	buffer_free(buf);

	become(gpu, "xe");
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	check(asleep(gpu));
	id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_PINNED, true);
	check(id > 0 && importer_map(imp, id, NULL, 0) > 0);
	check(importer_state(imp, id).peer2peer == p2p);
	check_dma(buf, imp, id);
	check(!asleep(gpu));
	check_errno(importer_detach(imp, id), 0);
	eventually(asleep, gpu, "no importer is attached, and the GPU does not sleep");
	set_power(gpu, "on");
	close(imp);
	buffer_free(buf);
}

static void test_eviction(struct gpu *gpu)
{
	int imp = importer_open(), id;
	unsigned char bytes[128], back[128];
	unsigned long long inode;
	struct buffer *buf;

	become(gpu, "amdgpu");
	check_errno(gpu_put(gpu, "pin_rule", "vram"), 0);
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	inode = buf->inode;
	if (kernel_has_p2p(imp, gpu)) {
		id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_PINNED, true);
		check(id > 0 && importer_map(imp, id, NULL, 0) == 1);
		check_errno(gpu_put(gpu, "evict", "%llu", inode), -EBUSY);
		check_place(buf, "vram");
		check_dma(buf, imp, id);
		check_errno(importer_detach(imp, id), 0);

		id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_DYNAMIC, true);
		check(id > 0 && importer_map(imp, id, NULL, 0) == 1);
		check_errno(gpu_put(gpu, "evict", "%llu", inode), 0);
		check_place(buf, "system");
		/* The next access of a peer moves the buffer back to VRAM. */
		check_dma(buf, imp, id);
		check(importer_state(imp, id).invalidations >= 1);
		check_errno(importer_detach(imp, id), 0);
	}
	/* The CPU reads and writes the buffer through the exporter's vmap. */
	id = importer_attach(imp, TESTIMPORTER_SOFT, buf->fd, TESTIMPORTER_DYNAMIC, false);
	check(id > 0);
	fill(buf, bytes, sizeof(bytes), 5000);
	check_errno(importer_transfer(imp, false, id, false, 5000, back, sizeof(back)), 0);
	check(!memcmp(bytes, back, sizeof(back)));
	nonce(bytes, sizeof(bytes));
	check_errno(importer_transfer(imp, false, id, true, 9000, bytes, sizeof(bytes)), 0);
	check(!memcmp(buf->map + 9000, bytes, sizeof(bytes)));
	check_errno(importer_transfer(imp, false, id, true, buf->size - 1, bytes, 2), -EINVAL);
	check_errno(gpu_put(gpu, "evict", "999999999"), -ENOENT);
	check_errno(gpu_put(gpu, "evict", "nonsense"), -EINVAL);
	close(imp);
	buffer_free(buf);
}

/* i915: the attach moves the buffer out of VRAM, and no importer is a peer. */
static void test_i915(struct gpu *gpu)
{
	int imp = importer_open(), id, n;
	struct testimporter_segment segs[256];
	struct buffer *buf;
	unsigned int kind;

	become(gpu, "i915");
	for (kind = TESTIMPORTER_STATIC; kind <= TESTIMPORTER_DYNAMIC; kind++) {
		buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
		buf->map[0] = 1;
		check_place(buf, "vram");
		id = importer_attach(imp, near_edu, buf->fd, kind, kind != TESTIMPORTER_STATIC);
		check(id > 0);
		check_place(buf, "system");
		n = importer_map(imp, id, segs, 256);
		check(n > 0);
		check_segments(buf, segs, n, near_edu, false);
		check(buf->map[0] == 1);
		if (kind == TESTIMPORTER_DYNAMIC)
			check_dma(buf, imp, id);
		check_errno(importer_detach(imp, id), 0);
		buffer_free(buf);
	}
	if (!strcmp(gpu->personality, "i915")) {
		buf = buffer_new(gpu, MIB, VRAM);
		check_errno(importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_DYNAMIC, true),
			    -EOPNOTSUPP);
		buffer_free(buf);
	}
	close(imp);
}

#define GATE "/sys/module/softgpu/parameters/topology_gate"

static bool maps_in_attach(void)
{
	return getenv("SOFTGPU_MAPS_IN_ATTACH");
}

/*
 * An importer that takes part in moves and needs pages: the gate refuses its
 * attach. Without the gate its map fails, which some kernels do in the attach.
 */
static void nvidia_wants_peers(struct gpu *gpu, int imp, unsigned int kind)
{
	struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	int id;

	check_errno(importer_attach(imp, near_edu, buf->fd, kind, false), -524);
	check_errno(put(GATE, "N"), 0);
	id = importer_attach(imp, near_edu, buf->fd, kind, false);
	if (maps_in_attach()) {
		check_errno(id, -ENOMEM);
	} else {
		check(id > 0, "attach: %s", strerror(-id));
		check_errno(importer_map(imp, id, NULL, 0), -ENOMEM);
		check_errno(importer_detach(imp, id), 0);
	}
	id = importer_attach(imp, far_edu, buf->fd, kind, true);
	check(id > 0 && importer_map(imp, id, NULL, 0) == 1, "there is no gate");
	check_errno(importer_detach(imp, id), 0);
	check_errno(put(GATE, "Y"), 0);
	buffer_free(buf);
}

/* NVIDIA: the buffer never moves, and the driver has its own topology rule. */
static void test_nvidia(struct gpu *gpu)
{
	int imp = importer_open(), id, n;
	struct testimporter_segment segs[256];
	unsigned char byte = 0;
	struct buffer *buf;
	unsigned int kind;

	become(gpu, "nvidia");
	for (kind = TESTIMPORTER_STATIC; kind <= TESTIMPORTER_DYNAMIC; kind++) {
		bool p2p = kind != TESTIMPORTER_STATIC;

		buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
		check_place(buf, "vram");
		check_errno(gpu_put(gpu, "evict", "%llu", (unsigned long long)buf->inode), -EBUSY);
		check_errno(importer_attach(imp, far_edu, buf->fd, kind, p2p), -524);
		check_errno(importer_attach(imp, TESTIMPORTER_SOFT, buf->fd, kind, p2p), -524);
		id = importer_attach(imp, near_edu, buf->fd, kind, p2p);
		check(id > 0, "attach: %s", strerror(-id));
		check(buffer_count(buf, "maps") == (p2p && maps_in_attach()));
		n = importer_map(imp, id, segs, 256);
		check(n == 1);
		check_segments(buf, segs, n, near_edu, true);
		if (kind == TESTIMPORTER_PINNED)
			check_dma(buf, imp, id);
		check_errno(importer_transfer(imp, false, id, false, 0, &byte, 1), -EINVAL);
		check_errno(importer_detach(imp, id), 0);
		buffer_free(buf);
		if (p2p)
			nvidia_wants_peers(gpu, imp, kind);
	}
	become(gpu, "nvidia-coherent");
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	/* This memory has pages: importers that need pages can map it. */
	id = importer_attach(imp, far_edu, buf->fd, TESTIMPORTER_PINNED, false);
	check(id > 0);
	n = importer_map(imp, id, segs, 256);
	check(n > 0);
	check_segments(buf, segs, n, far_edu, false);
	check_dma(buf, imp, id);
	check_errno(importer_detach(imp, id), 0);
	buffer_free(buf);
	close(imp);
}

/* vfio-pci: it takes only importers that are peer to peer and revocable. */
static void test_vfio(struct gpu *gpu)
{
	int imp = importer_open(), id, n;
	bool p2p = kernel_has_p2p(imp, gpu);
	struct testimporter_segment segs[4];
	unsigned char byte = 0;
	unsigned long long inode;
	struct buffer *buf;

	become(gpu, "vfio");
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	inode = buf->inode;
	check_place(buf, "vram");
	check_errno(importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_STATIC, false),
		    -EOPNOTSUPP);
	check_errno(importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_DYNAMIC, false),
		    -EOPNOTSUPP);
	if (!p2p) {
		/* This kernel maps at attach: the exporter is not dynamic. */
		id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_REVOCABLE, true);
		check_errno(id, -EINVAL);
		goto out;
	}
	check_errno(importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_PINNED, true),
		    -EOPNOTSUPP);
	id = importer_attach(imp, far_edu, buf->fd, TESTIMPORTER_REVOCABLE, true);
	check(id > 0);
	/* This map works if the kernel trusts the host bridge (AMD Zen). */
	n = importer_map(imp, id, NULL, 0);
	check_errno(n, importer_distance(imp, gpu->bdf, far_edu) < 0 ? -EINVAL : 1);
	check_errno(importer_detach(imp, id), 0);

	id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_REVOCABLE, true);
	check(id > 0);
	n = importer_map(imp, id, segs, 4);
	check(n == 1);
	/* Below a switch vfio gives bus addresses, with or without an IOMMU. */
	check(segs[0].addr == gpu->bar + buffer_count(buf, "offset"));
	/* QEMU's switch sends them to an IOMMU, which has no entry for them. */
	if (!translated(near_edu))
		check_dma(buf, imp, id);
	check_errno(gpu_put(gpu, "revoke", "%llu", inode), 0);
	check(importer_state(imp, id).revoked);
	check_errno(importer_transfer(imp, true, id, true, 0, &byte, 1), -EREMOTEIO);
	check_errno(importer_map(imp, id, NULL, 0), -EREMOTEIO);
	check_errno(importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_REVOCABLE, true),
		    -ENODEV);
	check_errno(gpu_put(gpu, "unrevoke", "%llu", inode), 0);
	/* The attachment stays revoked; a new one works. */
	check_errno(importer_transfer(imp, true, id, true, 0, &byte, 1), -EREMOTEIO);
	check_errno(importer_detach(imp, id), 0);
	id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_DYNAMIC, true);
	check(id > 0);
	check(importer_map(imp, id, NULL, 0) == 1);
	check_errno(gpu_put(gpu, "revoke", "%llu", inode), 0);
	check_errno(importer_transfer(imp, true, id, true, 0, &byte, 1), -ENODEV);
	check_errno(gpu_put(gpu, "unrevoke", "%llu", inode), 0);
	if (!translated(near_edu))
		check_dma(buf, imp, id);
out:
	close(imp);
	buffer_free(buf);
}

static void test_arguments(struct gpu *gpu)
{
	int imp = importer_open(), id;
	struct buffer *buf;

	become(gpu, "amdgpu");
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	check_errno(importer_attach(imp, "rubbish", buf->fd, 0, false), -EINVAL);
	check_errno(importer_attach(imp, "0000:1f:1f.7", buf->fd, 0, false), -ENODEV);
	check_errno(importer_attach(imp, near_edu, -1, 0, false), -EBADF);
	check_errno(importer_attach(imp, near_edu, gpu->drm, 0, false), -EINVAL);
	check_errno(importer_attach(imp, near_edu, buf->fd, 4, false), -EINVAL);
	check_errno(importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_STATIC, true), -EINVAL);
	check_errno(importer_map(imp, 77, NULL, 0), -ENOENT);
	check_errno(importer_detach(imp, 77), -ENOENT);
	id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_PINNED, true);
	check(id > 0);
	check_errno(importer_unmap(imp, id), -ENXIO);
	check_errno(importer_transfer(imp, true, id, true, 0, &id, 4), -ENXIO);
	check(importer_map(imp, id, NULL, 0) > 0);
	check_errno(importer_map(imp, id, (void *)8, 1), -EFAULT);
	check_errno(importer_unmap(imp, id), 0);
	check_errno(importer_transfer(imp, true, id, true, 0, &id, 4), -ENXIO);
	check(!buffer_count(buf, "pins"));
	close(imp);
	buffer_free(buf);
}

const struct test importer_tests[] = {
	{ .name = "ttm", .run = test_ttm },
	{ .name = "vram-only", .run = test_vram_only },
	{ .name = "demotion", .run = test_demotion },
	{ .name = "told", .run = test_told },
	{ .name = "suspended", .run = test_suspended },
	{ .name = "eviction", .run = test_eviction },
	{ .name = "i915", .run = test_i915 },
	{ .name = "nvidia", .run = test_nvidia },
	{ .name = "vfio", .run = test_vfio },
	{ .name = "arguments", .run = test_arguments },
	{}
};
