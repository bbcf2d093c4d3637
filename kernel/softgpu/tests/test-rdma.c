// SPDX-License-Identifier: GPL-2.0
/* Regions of the patched rdma_rxe on the GPU's buffers, by kind of importer. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nic.h"

/* In tests/machine.json: below the GPU's switch, elsewhere, without PCI. */
#define NEAR "rxe0"
#define FAR "rxe1"
#define SOFT "rxe-soft"

static void behave(struct gpu *gpu, const char *behaviour)
{
	check_errno(gpu_put(gpu, "behaviour", "%s", behaviour), 0);
	check_errno(gpu_put(gpu, "pin_rule", "vram"), 0);
}

static int evict(struct buffer *buf)
{
	return gpu_put(buf->gpu, "evict", "%llu", (unsigned long long)buf->inode);
}

static bool peers(struct gpu *gpu, struct nic *nic)
{
	int imp = importer_open(), distance;

	distance = importer_distance(imp, gpu->bdf, nic->bdf);
	close(imp);
	return distance >= 0;
}

/* Whether the exporter can move a buffer that has a region: no pin holds it. */
static bool moves(struct buffer *buf)
{
	return !buffer_count(buf, "pins");
}

static void check_let_go(struct buffer *buf)
{
	check(!buffer_count(buf, "attachments") && !buffer_count(buf, "maps") &&
	      !buffer_count(buf, "pins") && !buffer_count(buf, "vmaps"));
}

/* Bytes arrive both ways. The CPU sees them, and the BAR has those in VRAM. */
static void check_transfers(struct nic *nic, struct buffer *buf, struct mr *mr, bool vram)
{
	unsigned char bytes[9001], back[9001];
	uint64_t old;

	nonce(bytes, sizeof(bytes));
	check_status(nic_write(nic, mr, 4099, bytes, sizeof(bytes)), IBV_WC_SUCCESS);
	check_place(buf, vram ? "vram" : "system");
	check(!memcmp(buf->map + 4099, bytes, sizeof(bytes)), "the WRITE went elsewhere");
	check(bar_holds(buf->gpu, bytes, 64) == vram, "the bytes are%s in the BAR",
	      vram ? " not" : "");
	check_status(nic_read(nic, mr, 4099, back, sizeof(back)), IBV_WC_SUCCESS);
	check(!memcmp(back, bytes, sizeof(bytes)), "the READ came from elsewhere");
	nonce(bytes, sizeof(bytes));
	memcpy(buf->map + 1, bytes, sizeof(bytes));
	check_status(nic_write_from(nic, mr, 1, back, sizeof(back)), IBV_WC_SUCCESS);
	check(!memcmp(back, bytes, sizeof(bytes)), "the local end is elsewhere");

	*(volatile uint64_t *)(buf->map + 64) = 40;
	check_status(nic_fetch_add(nic, mr, 64, 2, &old), IBV_WC_SUCCESS);
	check(old == 40 && *(volatile uint64_t *)(buf->map + 64) == 42);
	check_status(nic_write(nic, mr, buf->size - 8, bytes, 9), IBV_WC_REM_ACCESS_ERR);
}

static void one_region(struct gpu *gpu, struct nic *nic, int kind, bool p2p, bool vram)
{
	struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	struct mr mr;

	check_errno(nic_register(nic, buf, kind, p2p, &mr), 0);
	check(buffer_count(buf, "peers") == (p2p && vram), "%ld peers",
	      buffer_count(buf, "peers"));
	check_transfers(nic, buf, &mr, vram);
	nic_deregister(nic, &mr);
	check_let_go(buf);
	buffer_free(buf);
}

static void test_rdma(struct gpu *gpu)
{
	static const char *const nics[] = { NEAR, FAR, SOFT };
	int i, kind, p2p;

	for (i = 0; i < 3; i++) {
		struct nic *nic = nic_open(nics[i]);
		bool peer = peers(gpu, nic);

		check(!strcmp(nic->bdf, TESTIMPORTER_SOFT) == !strcmp(nics[i], SOFT),
		      "%s is on %s", nic->name, nic->bdf);
		behave(gpu, "amdgpu");
		for (kind = 0; kind < IMPORTER_KINDS; kind++)
			for (p2p = 0; p2p < 2; p2p++)
				one_region(gpu, nic, kind, p2p, p2p && peer);
		nic_close(nic);
	}
}

/* i915: the attach moves the buffer out of VRAM. nvidia: no vmap, no region. */
static void test_rdma_behaviours(struct gpu *gpu)
{
	struct nic *nic = nic_open(NEAR);
	struct buffer *buf;
	struct mr mr;
	int kind;

	for (kind = 0; kind < IMPORTER_KINDS; kind++) {
		behave(gpu, "i915");
		buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
		check_errno(nic_register(nic, buf, kind, true, &mr), 0);
		check_transfers(nic, buf, &mr, false);
		nic_deregister(nic, &mr);
		buffer_free(buf);
		behave(gpu, "nvidia");
		buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
		check_errno(nic_register(nic, buf, kind, true, &mr), -EOPNOTSUPP);
		check(!buffer_count(buf, "attachments") && !buffer_count(buf, "maps"));
		buffer_free(buf);
	}
	nic_close(nic);
}

/* As bnxt_re, efa, mana, ionic: a registered buffer stays in its place. */
static void test_rdma_pinned(struct gpu *gpu)
{
	struct nic *nic = nic_open(NEAR);
	unsigned char bytes[4096];
	bool vram = peers(gpu, nic);
	struct buffer *buf;
	struct mr mr;

	behave(gpu, "amdgpu");
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	check_errno(nic_register(nic, buf, PINNED, true, &mr), 0);
	if (vram)
		check_errno(evict(buf), -EBUSY);
	check(gpu_put(gpu, "revoke", "%llu", (unsigned long long)buf->inode) == -EBUSY);
	check_transfers(nic, buf, &mr, vram);
	nonce(bytes, sizeof(bytes));
	check_status(nic_write(nic, &mr, 0, bytes, sizeof(bytes)), IBV_WC_SUCCESS);
	nic_deregister(nic, &mr);
	check_let_go(buf);
	check_errno(evict(buf), 0);
	check_place(buf, "system");
	check(!memcmp(buf->map, bytes, sizeof(bytes)), "lost in the move");
	buffer_free(buf);
	nic_close(nic);
}

/* Every access to a revoked region fails, and changes no byte. */
static void check_revoked(struct nic *nic, struct buffer *buf, struct mr *mr)
{
	unsigned char bytes[4096], back[64];
	uint64_t old;

	nonce(bytes, sizeof(bytes));
	memset(buf->map, 0x5a, buf->size);
	check_status(nic_write(nic, mr, 0, bytes, sizeof(bytes)), IBV_WC_REM_ACCESS_ERR);
	check_status(nic_read(nic, mr, 0, back, sizeof(back)), IBV_WC_REM_ACCESS_ERR);
	check_status(nic_fetch_add(nic, mr, 0, 1, &old), IBV_WC_REM_ACCESS_ERR);
	/* rxe at times completes local errors as flushed, host memory's too. */
	check(nic_write_from(nic, mr, 0, back, sizeof(back)) != IBV_WC_SUCCESS && !back[0]);
	check(buf->map[0] == 0x5a && !memcmp(buf->map, buf->map + 1, buf->size - 1),
	      "a stale write");
	check(!bar_holds(buf->gpu, bytes, 64), "a stale write to the BAR");
}

/* As irdma: the buffer is pinned until the exporter revokes it. */
static void revocable(struct gpu *gpu, struct nic *nic, const char *behaviour)
{
	struct buffer *buf, *other;
	bool vram = peers(gpu, nic);
	unsigned long long inode;
	struct mr mr, again;

	behave(gpu, behaviour);
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	inode = buf->inode;
	check_errno(nic_register(nic, buf, REVOCABLE, true, &mr), 0);
	if (vram)
		check_errno(evict(buf), -EBUSY);
	check_transfers(nic, buf, &mr, vram);

	check_errno(gpu_put(gpu, "revoke", "%llu", inode), 0);
	check(!buffer_count(buf, "pins") && !buffer_count(buf, "vmaps") &&
	      !buffer_count(buf, "maps") && buffer_count(buf, "attachments") == 1);
	/* Another buffer gets its place in VRAM. */
	check_errno(evict(buf), 0);
	other = buffer_new(gpu, MIB, SYSTEM | VRAM);
	memset(other->map, 0xa5, other->size);
	check_revoked(nic, buf, &mr);
	check(other->map[0] == 0xa5 && !memcmp(other->map, other->map + 1, other->size - 1),
	      "a stale write to another buffer");
	check_errno(nic_register(nic, buf, REVOCABLE, true, &again), -ENODEV);

	/* The region stays revoked; a new registration works. */
	check_errno(gpu_put(gpu, "unrevoke", "%llu", inode), 0);
	check_revoked(nic, buf, &mr);
	check_errno(nic_register(nic, buf, REVOCABLE, true, &again), 0);
	check(again.rkey != mr.rkey);
	check_transfers(nic, buf, &again, vram);
	check_revoked(nic, buf, &mr);
	nic_deregister(nic, &again);
	nic_deregister(nic, &mr);
	check_let_go(buf);
	buffer_free(other);
	buffer_free(buf);
}

static void test_rdma_revocable(struct gpu *gpu)
{
	struct nic *nic = nic_open(NEAR);

	revocable(gpu, nic, "amdgpu");
	revocable(gpu, nic, "xe");
	nic_close(nic);
}

/* A thread that posts WRITEs until the test stops it or a WRITE fails. */
struct traffic {
	struct nic *nic;
	struct mr *mr;
	pthread_t thread;
	atomic_uint rounds;
	atomic_bool stop;
	enum ibv_wc_status status;
	unsigned char last[4096];
};

static void *hammer(void *arg)
{
	struct traffic *t = arg;

	do {
		nonce(t->last, sizeof(t->last));
		t->status = nic_write(t->nic, t->mr, 12288, t->last, sizeof(t->last));
		t->rounds++;
	} while (!t->stop && t->status == IBV_WC_SUCCESS);
	return NULL;
}

static void traffic_start(struct traffic *t, struct nic *nic, struct mr *mr)
{
	t->nic = nic;
	t->mr = mr;
	check(!pthread_create(&t->thread, NULL, hammer, t));
	while (t->rounds < 3)
		usleep(100);
}

/* Once a revocation has returned, no write to the buffer is under way. */
static void test_rdma_revoked_in_use(struct gpu *gpu)
{
	struct nic *nic = nic_open(NEAR);
	int round, i;

	behave(gpu, "amdgpu");
	for (round = 0; round < 20; round++) {
		struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
		struct traffic t = { 0 };
		struct mr mr;

		check_errno(nic_register(nic, buf, REVOCABLE, true, &mr), 0);
		traffic_start(&t, nic, &mr);
		usleep(100 * round);
		check_errno(gpu_put(gpu, "revoke", "%llu", (unsigned long long)buf->inode), 0);
		memset(buf->map, 0, buf->size);
		pthread_join(t.thread, NULL);
		check_status(t.status, IBV_WC_REM_ACCESS_ERR);
		for (i = 0; i < 4096; i++)
			check(!buf->map[12288 + i], "round %d: a stale write", round);
		nic_deregister(nic, &mr);
		check_let_go(buf);
		buffer_free(buf);
	}
	nic_close(nic);
}

/* As mlx5: the region follows the buffer. */
static void test_rdma_dynamic(struct gpu *gpu)
{
	struct nic *nic = nic_open(NEAR);
	unsigned char bytes[4096], back[4096];
	struct buffer *buf, *other;
	bool vram = peers(gpu, nic);
	long before;
	struct mr mr;

	behave(gpu, "amdgpu");
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	check_errno(nic_register(nic, buf, DYNAMIC, true, &mr), 0);
	check_transfers(nic, buf, &mr, vram);
	if (!moves(buf)) {
		/* Without DMABUF_MOVE_NOTIFY the core pins for a map. */
		check(!vram, "pinned in VRAM");
		nic_deregister(nic, &mr);
		check_let_go(buf);
		buffer_free(buf);
		nic_close(nic);
		not_here("the kernel pins for dynamic importers");
	}
	check(vram, "this kernel has no peer-to-peer DMA");
	nonce(bytes, sizeof(bytes));
	check_status(nic_write(nic, &mr, 8192, bytes, sizeof(bytes)), IBV_WC_SUCCESS);
	before = buffer_count(buf, "offset");

	check_errno(evict(buf), 0);
	check_place(buf, "system");
	check(!buffer_count(buf, "maps"), "still mapped after the move");
	other = buffer_new(gpu, MIB, SYSTEM | VRAM);
	memset(other->map, 0xa5, other->size);
	check(buffer_count(other, "offset") == before, "its place is not taken");
	check_status(nic_read(nic, &mr, 8192, back, sizeof(back)), IBV_WC_SUCCESS);
	check(!memcmp(back, bytes, sizeof(bytes)), "the bytes did not follow");
	check(buffer_count(buf, "offset") != before);
	check_transfers(nic, buf, &mr, true);
	check(other->map[0] == 0xa5 && !memcmp(other->map, other->map + 1, other->size - 1),
	      "a stale write to another buffer");

	/* An access waits for the fence of the move. */
	check_errno(gpu_put(gpu, "fence_delay_ms", "50"), 0);
	check_errno(evict(buf), 0);
	check_transfers(nic, buf, &mr, true);
	check_errno(gpu_put(gpu, "fence_delay_ms", "0"), 0);
	nic_deregister(nic, &mr);

	/* Without peer-to-peer an access moves the buffer to system memory. */
	check_errno(nic_register(nic, buf, DYNAMIC, false, &mr), 0);
	check_transfers(nic, buf, &mr, false);
	check_errno(gpu_put(gpu, "restore", "%llu", (unsigned long long)buf->inode), 0);
	check_place(buf, "vram");
	check_transfers(nic, buf, &mr, false);

	/* Accesses fail after a revoke, and work again after an unrevoke. */
	check_errno(gpu_put(gpu, "revoke", "%llu", (unsigned long long)buf->inode), 0);
	check_status(nic_write(nic, &mr, 0, bytes, 1), IBV_WC_REM_ACCESS_ERR);
	check_errno(gpu_put(gpu, "unrevoke", "%llu", (unsigned long long)buf->inode), 0);
	check_transfers(nic, buf, &mr, false);
	nic_deregister(nic, &mr);
	check_let_go(buf);
	buffer_free(other);
	buffer_free(buf);
	nic_close(nic);
}

/* During moves no write fails, is lost, or goes to another buffer. */
static void test_rdma_moved_in_use(struct gpu *gpu)
{
	struct nic *nic = nic_open(NEAR);
	struct buffer *buf, *other;
	struct traffic t = { 0 };
	unsigned char back[4096];
	struct mr mr;
	int i;

	behave(gpu, "amdgpu");
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	check_errno(nic_register(nic, buf, DYNAMIC, true, &mr), 0);
	if (!moves(buf)) {
		nic_deregister(nic, &mr);
		buffer_free(buf);
		nic_close(nic);
		not_here("the kernel pins for dynamic importers");
	}
	traffic_start(&t, nic, &mr);
	for (i = 0; i < 50; i++) {
		unsigned int rounds = t.rounds;

		check_errno(evict(buf), 0);
		other = buffer_new(gpu, MIB, SYSTEM | VRAM);
		memset(other->map, 0xa5, other->size);
		while (t.rounds < rounds + 2 && t.status == IBV_WC_SUCCESS)
			usleep(100);
		check(other->map[0] == 0xa5 &&
		      !memcmp(other->map, other->map + 1, other->size - 1),
		      "move %d: a write to another buffer", i);
		buffer_free(other);
	}
	t.stop = true;
	pthread_join(t.thread, NULL);
	check_status(t.status, IBV_WC_SUCCESS);
	check_status(nic_read(nic, &mr, 12288, back, sizeof(back)), IBV_WC_SUCCESS);
	check(!memcmp(back, t.last, sizeof(back)) &&
	      !memcmp(buf->map + 12288, t.last, sizeof(back)), "the last write is lost");
	nic_deregister(nic, &mr);
	check_let_go(buf);
	buffer_free(buf);
	nic_close(nic);
}

/*
 * The second importer is not peer to peer. It moves the buffer to system memory
 * if the first one is dynamic, and fails if the first one has pinned VRAM.
 */
static void two_importers(struct gpu *gpu, struct nic *first, struct nic *second, int kind, bool p2p)
{
	struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	struct mr a, b;

	check_errno(nic_register(first, buf, DYNAMIC, true, &a), 0);
	check_transfers(first, buf, &a, true);
	check_errno(nic_register(second, buf, kind, p2p, &b), 0);
	check_place(buf, "system");
	check_transfers(first, buf, &a, false);
	check_transfers(second, buf, &b, false);
	nic_deregister(second, &b);
	check_transfers(first, buf, &a, false);
	check_errno(gpu_put(gpu, "restore", "%llu", (unsigned long long)buf->inode), 0);
	check_transfers(first, buf, &a, true);
	nic_deregister(first, &a);

	check_errno(nic_register(first, buf, PINNED, true, &a), 0);
	check_errno(nic_register(second, buf, kind, p2p, &b), -EINVAL);
	check(buffer_count(buf, "attachments") == 1);
	check_transfers(first, buf, &a, true);
	nic_deregister(first, &a);
	check_let_go(buf);
	buffer_free(buf);
}

static void test_rdma_two(struct gpu *gpu)
{
	struct nic *near = nic_open(NEAR), *far = nic_open(FAR);
	int kind;

	behave(gpu, "amdgpu");
	if (!peers(gpu, near))
		not_here("this kernel has no peer-to-peer DMA");
	/* A move that a pin causes notifies the importer that pins, too. */
	for (kind = PINNED; kind <= REVOCABLE; kind++) {
		two_importers(gpu, near, near, kind, false);
		if (!peers(gpu, far))
			two_importers(gpu, near, far, kind, true);
	}
	nic_close(far);
	nic_close(near);
}

/* rxe needs a vmap, which the other behaviours do not have. */
static const char *const behaviours[] = { "amdgpu", "xe", "i915" };

#define BEHAVIOURS (sizeof(behaviours) / sizeof(behaviours[0]))

static void killed(struct gpu *gpu, int kind)
{
	int pipefd[2];
	pid_t pid;
	char c;

	check(!pipe(pipefd));
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		struct gpu *own = gpu_open(gpu->bdf);
		struct buffer *buf = buffer_new(own, MIB, SYSTEM | VRAM);
		struct nic *nic = nic_open(NEAR);
		struct traffic t = { 0 };
		struct mr mr;

		check_errno(nic_register(nic, buf, kind, true, &mr), 0);
		traffic_start(&t, nic, &mr);
		check(write(pipefd[1], "x", 1) == 1);
		pause();
		_exit(0);
	}
	close(pipefd[1]);
	check(read(pipefd[0], &c, 1) == 1);
	close(pipefd[0]);
	check(gpu_buffers(gpu) == 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	eventually(no_buffers, gpu, "a killed process leaves its buffer");
}

static void test_rdma_killed(struct gpu *gpu)
{
	unsigned int i;
	int kind;

	nic_close(nic_open(NEAR));
	for (i = 0; i < BEHAVIOURS; i++) {
		behave(gpu, behaviours[i]);
		for (kind = 0; kind < IMPORTER_KINDS; kind++)
			killed(gpu, kind);
	}
}

/* Unbinds the driver while each kind of importer has a region. */
static void unbind(const char *bdf_of, struct nic *nic, const char *behaviour)
{
	struct gpu *gpu = gpu_open(bdf_of);
	/* Kernels with peer-to-peer let exporters notify pinned importers. */
	bool tells_all = peers(gpu, nic), vram = tells_all && strcmp(behaviour, "i915");
	unsigned char bytes[64], back[64];
	struct buffer *buf[IMPORTER_KINDS];
	struct mr mr[IMPORTER_KINDS];
	char bdf[32];
	int kind;

	strcpy(bdf, gpu->bdf);
	behave(gpu, behaviour);
	for (kind = 0; kind < IMPORTER_KINDS; kind++) {
		buf[kind] = buffer_new(gpu, MIB, SYSTEM | VRAM);
		check_errno(nic_register(nic, buf[kind], kind, true, &mr[kind]), 0);
		check_transfers(nic, buf[kind], &mr[kind], vram);
	}
	check_errno(put("/sys/bus/pci/drivers/softgpu/unbind", "%s", bdf), 0);
	check(unbound(bdf));

	/* A pinned region keeps its memory, which no other buffer gets. */
	nonce(bytes, sizeof(bytes));
	check_status(nic_write(nic, &mr[PINNED], 77, bytes, sizeof(bytes)), IBV_WC_SUCCESS);
	check_status(nic_read(nic, &mr[PINNED], 77, back, sizeof(back)), IBV_WC_SUCCESS);
	check(!memcmp(bytes, back, sizeof(back)));
	check(bar_holds(gpu, bytes, sizeof(bytes)) == vram);
	check_status(nic_write(nic, &mr[REVOCABLE], 0, bytes, sizeof(bytes)),
		     tells_all ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
	/* Not notified, the region calls vmap for this access: vmap fails. */
	if (!tells_all)
		expect_vmap_warning();
	check_status(nic_write(nic, &mr[DYNAMIC], 0, bytes, sizeof(bytes)),
		     IBV_WC_REM_ACCESS_ERR);
	forget_warnings();
	if (vram)
		check_errno(put("/sys/bus/pci/drivers/softgpu/bind", "%s", bdf), -EBUSY);
	for (kind = 0; kind < IMPORTER_KINDS; kind++) {
		nic_deregister(nic, &mr[kind]);
		munmap(buf[kind]->map, buf[kind]->size);
		close(buf[kind]->fd);
		free(buf[kind]);
	}
	gpu_close(gpu);
	if (unbound(bdf))
		check_errno(put("/sys/bus/pci/drivers/softgpu/bind", "%s", bdf), 0);
	eventually(bound, bdf, "the device does not come back");
	gpu = gpu_open(bdf);
	check(!gpu_buffers(gpu));
	check(!bar_holds(gpu, bytes, sizeof(bytes)), "VRAM was not wiped");
	behave(gpu, "amdgpu");
	one_region(gpu, nic, PINNED, true, tells_all);
	gpu_close(gpu);
}

static void test_rdma_unbind(struct gpu *gpu)
{
	struct nic *nic = nic_open(NEAR);
	unsigned int i;

	for (i = 0; i < BEHAVIOURS; i++)
		unbind(gpu->bdf, nic, behaviours[i]);
	nic_close(nic);
}

/* The device has its kind of importer from the module's parameter. */
static void test_rdma_parameter(struct gpu *gpu)
{
	struct nic *nic = nic_open(SOFT);
	unsigned long long inode;
	struct buffer *buf;
	char kind[32], peer[32], path[128];
	unsigned char byte = 1;
	bool gives_way;
	struct mr mr;

	get("/sys/module/rdma_rxe/parameters/importer", kind, sizeof(kind));
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/peer2peer", nic->name);
	get(path, peer, sizeof(peer));
	check(!strcmp(peer, "0"), "peer2peer is %s", peer);
	behave(gpu, "amdgpu");
	buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	inode = buf->inode;
	check_errno(nic_register_as_is(nic, buf, &mr), 0);
	check_status(nic_write(nic, &mr, 0, &byte, 1), IBV_WC_SUCCESS);
	gives_way = strcmp(kind, "pinned");
	check_errno(gpu_put(gpu, "revoke", "%llu", inode), gives_way ? 0 : -EBUSY);
	if (gives_way) {
		check_status(nic_write(nic, &mr, 0, &byte, 1), IBV_WC_REM_ACCESS_ERR);
		check_errno(gpu_put(gpu, "unrevoke", "%llu", inode), 0);
	}
	check_status(nic_write(nic, &mr, 0, &byte, 1),
		     strcmp(kind, "revocable") ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
	nic_deregister(nic, &mr);
	buffer_free(buf);
	nic_close(nic);
}

/* Prefetch is for on-demand regions: rxe must refuse it for all others. */
static void test_rdma_prefetch(struct gpu *gpu)
{
	struct nic *nic = nic_open(NEAR);
	struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	struct mr mr;
	int wait, err;

	check_errno(nic_register(nic, buf, PINNED, true, &mr), 0);
	for (wait = 0; wait < 2; wait++) {
		err = mr_prefetch(nic->lb.pd, mr.lkey, IOVA_BASE, 4096, wait);
		if (err == EOPNOTSUPP) {
			nic_deregister(nic, &mr);
			buffer_free(buf);
			nic_close(nic);
			not_here("this rdma_rxe prefetches nothing");
		}
		check_errno(-err, -EINVAL);
		check_errno(-mr_prefetch(nic->lb.pd, nic->lb.host_mr->lkey,
					 (uintptr_t)nic->lb.host, 4096, wait), -EINVAL);
	}
	nic_deregister(nic, &mr);
	buffer_free(buf);
	nic_close(nic);
}

const struct test rdma_tests[] = {
	{ .name = "rdma", .run = test_rdma },
	{ .name = "rdma-behaviours", .run = test_rdma_behaviours },
	{ .name = "rdma-pinned", .run = test_rdma_pinned },
	{ .name = "rdma-revocable", .run = test_rdma_revocable },
	{ .name = "rdma-revoked-in-use", .run = test_rdma_revoked_in_use },
	{ .name = "rdma-dynamic", .run = test_rdma_dynamic },
	{ .name = "rdma-moved-in-use", .run = test_rdma_moved_in_use },
	{ .name = "rdma-two", .run = test_rdma_two },
	{ .name = "rdma-killed", .run = test_rdma_killed },
	{ .name = "rdma-unbind", .run = test_rdma_unbind },
	{ .name = "rdma-prefetch", .run = test_rdma_prefetch },
	{ .name = "rdma-parameter", .run = test_rdma_parameter, .on_request = true },
	{}
};
