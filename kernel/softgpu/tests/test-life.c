// SPDX-License-Identifier: GPL-2.0
/* Processes that die, drivers that are unbound, devices that vanish. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <drm/drm.h>

#include "testlib.h"

static sigjmp_buf jump;

static void on_sigbus(int sig)
{
	siglongjmp(jump, sig);
}

/* Whether reading the byte ends in SIGBUS. */
static bool is_gone(volatile unsigned char *at)
{
	struct sigaction act = { .sa_handler = on_sigbus }, old;
	bool gone = true;

	sigaction(SIGBUS, &act, &old);
	if (!sigsetjmp(jump, 1)) {
		(void)*at;
		gone = false;
	}
	sigaction(SIGBUS, &old, NULL);
	return gone;
}

static const char *const behaviours[] = {
	"amdgpu", "xe", "i915", "nvidia", "nvidia-coherent", "vfio",
};

#define BEHAVIOURS (sizeof(behaviours) / sizeof(behaviours[0]))

/* A buffer that an importer of this kind has mapped. */
struct held {
	struct buffer *buf;
	int id;
	bool vram;
	bool pinned;		/* at the time it was mapped */
	unsigned char bytes[64];
};

/* false: this exporter refuses such an importer. */
static bool hold(struct gpu *gpu, int imp, unsigned int kind, bool p2p, struct held *h)
{
	bool vfio = !strcmp(gpu->behaviour, "vfio");
	char place[32];

	memset(h, 0, sizeof(*h));
	h->buf = buffer_new(gpu, MIB, SYSTEM | VRAM);
	nonce(h->bytes, sizeof(h->bytes));
	memcpy(h->buf->map, h->bytes, sizeof(h->bytes));
	h->id = importer_attach(imp, near_edu, h->buf->fd, kind, kind != TESTIMPORTER_STATIC);
	if (vfio && (kind < TESTIMPORTER_REVOCABLE || !p2p)) {
		check(h->id < 0, "vfio takes any importer");
		buffer_free(h->buf);
		return false;
	}
	check(h->id > 0, "%s: attach: %s", gpu->behaviour, strerror(-h->id));
	check(importer_map(imp, h->id, NULL, 0) > 0);
	buffer_place(h->buf, place);
	h->vram = !strcmp(place, "vram");
	h->pinned = buffer_count(h->buf, "pins") > 0;
	return true;
}

static void become(struct gpu *gpu, const char *behaviour)
{
	check_errno(gpu_put(gpu, "behaviour", "%s", behaviour), 0);
	check_errno(gpu_put(gpu, "pin_rule", "vram"), 0);
	snprintf(gpu->behaviour, sizeof(gpu->behaviour), "%s", behaviour);
}

static void check_held(int imp, struct held *h)
{
	unsigned char back[sizeof(h->bytes)];

	check_errno(importer_transfer(imp, true, h->id, false, 0, back, sizeof(back)), 0);
	check(!memcmp(h->bytes, back, sizeof(back)), "the importer lost its bytes");
}

/* The process to be killed reports this to its parent in shared memory. */
struct last_words {
	int buffers;
	struct held shared;
};

/*
 * The process to be killed. It exports buffers and imports them with all kinds.
 * Its parent keeps the shared importer open.
 */
static void die(const char *bdf, const char *behaviour, int shared, int fd,
		struct last_words *words)
{
	struct gpu *gpu = gpu_open(bdf);
	int imp = importer_open();
	bool p2p = kernel_has_p2p(imp, gpu);
	unsigned int kind;
	struct held h;

	become(gpu, behaviour);
	for (kind = TESTIMPORTER_STATIC; kind <= TESTIMPORTER_DYNAMIC; kind++)
		words->buffers += hold(gpu, imp, kind, p2p, &h);
	if (hold(gpu, shared, TESTIMPORTER_REVOCABLE, p2p, &words->shared))
		words->buffers++;
	else
		words->shared.id = 0;
	check(write(fd, "x", 1) == 1);
	pause();
	_exit(0);
}

static bool one_buffer(void *gpu)
{
	return gpu_buffers(gpu) == 1;
}

static void killed(struct gpu *gpu, const char *behaviour)
{
	struct last_words *words;
	int pipefd[2], shared;
	pid_t pid;
	char c;

	words = mmap(NULL, sizeof(*words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	check(words != MAP_FAILED && !pipe(pipefd));
	shared = importer_open();
	pid = fork();
	check(pid >= 0);
	if (!pid)
		die(gpu->bdf, behaviour, shared, pipefd[1], words);
	close(pipefd[1]);
	check(read(pipefd[0], &c, 1) == 1, "%s: the process died too early", behaviour);
	check(gpu_buffers(gpu) == words->buffers);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (words->shared.id) {
		/* The parent's importer still uses one buffer. */
		eventually(one_buffer, gpu, "a killed process leaves its buffers");
		if (strcmp(behaviour, "vfio") || !translated(near_edu))
			check_held(shared, &words->shared);
	}
	close(shared);
	eventually(no_buffers, gpu, "a killed process leaves its buffer");
	check(!bar_holds(gpu, words->shared.bytes, sizeof(words->shared.bytes)) ||
	      !words->shared.id, "VRAM was not wiped");
	close(pipefd[0]);
	munmap(words, sizeof(*words));
}

static void test_killed(struct gpu *gpu)
{
	unsigned int i;

	for (i = 0; i < BEHAVIOURS; i++)
		killed(gpu, behaviours[i]);
}

static int delete_module(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

/* The kernel refuses to unload the module while a dma-buf is alive. */
static void test_unload_refused(struct gpu *gpu)
{
	struct buffer *buf = buffer_new(gpu, MIB, SYSTEM | VRAM);

	check_errno(delete_module("softgpu"), -EAGAIN);
	buffer_free(buf);
}

static bool absent(void *bdf)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", (char *)bdf);
	return access(path, F_OK);
}

/*
 * Whether the exporter may invalidate this importer's mapping. The importer has
 * to be revocable, and only from 7.x on can an exporter notify one that pinned.
 */
static bool is_told(const struct held *h, unsigned int kind, bool p2p)
{
	return kind >= TESTIMPORTER_REVOCABLE && (p2p || !h->pinned);
}

/* Checks one importer's buffer after the device is gone. */
static void check_lost(struct gpu *gpu, int imp, struct held *h, unsigned int kind, bool p2p)
{
	unsigned char byte;

	check(is_gone(h->buf->map), "%s: the CPU still sees the buffer", gpu->behaviour);
	if (!is_told(h, kind, p2p))
		/* The exporter may not invalidate it: the mapping works. */
		check_held(imp, h);
	else if (kind == TESTIMPORTER_REVOCABLE)
		check_errno(importer_transfer(imp, true, h->id, false, 0, &byte, 1), -EREMOTEIO);
	else
		check_errno(importer_transfer(imp, true, h->id, false, 0, &byte, 1), -ENODEV);
	check_errno(importer_attach(imp, near_edu, h->buf->fd, TESTIMPORTER_DYNAMIC, true),
		    -ENODEV);
	check(buffer_export(gpu, h->buf->handle) < 0);
}

/* Whether VRAM stays in use when the device is gone. */
static bool keeps_vram(struct gpu *gpu, const struct held *h, unsigned int kind, bool p2p)
{
	/* These exporters pin VRAM for as long as the dma-buf lives. */
	bool never_moves = !strcmp(gpu->behaviour, "nvidia") || !strcmp(gpu->behaviour, "vfio");

	return h->vram && (never_moves || !is_told(h, kind, p2p));
}

static void take_away(struct gpu *gpu, bool unplug)
{
	if (unplug) {
		check_errno(gpu_put(gpu, "unplug", "now"), 0);
		eventually(absent, gpu->bdf, "the device is still there");
	} else {
		check_errno(put("/sys/bus/pci/drivers/softgpu/unbind", "%s", gpu->bdf), 0);
		check(unbound(gpu->bdf));
	}
}

/* Binds the driver again. busy: importers still use VRAM of the old binding. */
static void bind_again(char *bdf, bool unplugged, bool busy)
{
	int ret = 0;

	if (unplugged)
		check_errno(put("/sys/bus/pci/rescan", "1"), 0);
	if (unbound(bdf))
		ret = put("/sys/bus/pci/drivers/softgpu/bind", "%s", bdf);
	if (busy) {
		/* The driver refuses a device whose VRAM is still in use. */
		check(ret == -EBUSY || (unplugged && ret < 0), "bind: %d", ret);
		check(unbound(bdf));
	} else {
		check_errno(ret, 0);
		eventually(bound, bdf, "the device does not come back");
	}
}

/* Takes the device away in one of two ways, while all kinds of importers use it. */
static void lose_device(const char *bdf_of, const char *behaviour, bool unplug)
{
	struct gpu *gpu = gpu_open(bdf_of);
	struct held held[TESTIMPORTER_DYNAMIC + 1], *h;
	bool have[TESTIMPORTER_DYNAMIC + 1], busy = false, p2p;
	int imp = importer_open();
	unsigned int kind;
	char bdf[32];

	strcpy(bdf, gpu->bdf);
	become(gpu, behaviour);
	p2p = kernel_has_p2p(imp, gpu);
	for (kind = TESTIMPORTER_STATIC; kind <= TESTIMPORTER_DYNAMIC; kind++) {
		h = &held[kind];
		have[kind] = hold(gpu, imp, kind, p2p, h);
		if (have[kind])
			busy |= keeps_vram(gpu, h, kind, p2p);
	}
	take_away(gpu, unplug);
	for (kind = TESTIMPORTER_STATIC; kind <= TESTIMPORTER_DYNAMIC; kind++)
		if (have[kind])
			check_lost(gpu, imp, &held[kind], kind, p2p);
	bind_again(bdf, unplug, busy);
	close(imp);
	for (kind = TESTIMPORTER_STATIC; kind <= TESTIMPORTER_DYNAMIC; kind++) {
		if (!have[kind])
			continue;
		munmap(held[kind].buf->map, held[kind].buf->size);
		close(held[kind].buf->fd);
		free(held[kind].buf);
	}
	gpu_close(gpu);
	if (unbound(bdf))
		check_errno(put("/sys/bus/pci/drivers/softgpu/bind", "%s", bdf), 0);
	eventually(bound, bdf, "the device does not come back");

	gpu = gpu_open(bdf);
	check(!gpu_buffers(gpu));
	for (kind = TESTIMPORTER_STATIC; kind <= TESTIMPORTER_DYNAMIC; kind++)
		check(!have[kind] || !bar_holds(gpu, held[kind].bytes, sizeof(held[kind].bytes)),
		      "VRAM was not wiped");
	buffer_free(buffer_new(gpu, MIB, SYSTEM | VRAM));
	gpu_close(gpu);
}

static void test_unbind(struct gpu *gpu)
{
	unsigned int i;

	for (i = 0; i < BEHAVIOURS; i++)
		lose_device(gpu->bdf, behaviours[i], false);
}

static void test_unplug(struct gpu *gpu)
{
	unsigned int i;

	for (i = 0; i < BEHAVIOURS; i++)
		lose_device(gpu->bdf, behaviours[i], true);
}

/*
 * debugfs lists buffers while a process makes and releases their dma-bufs.
 * KASAN reports a read of a buffer that is already freed.
 */
static void test_listed(struct gpu *gpu)
{
	int i, status;
	pid_t pid = fork();

	check(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		gpu = gpu_open(gpu->bdf);
		for (;;)
			buffer_free(buffer_new(gpu, MIB, SYSTEM | VRAM));
	}
	for (i = 0; i < 500; i++)
		gpu_buffers(gpu);
	check(!kill(pid, SIGKILL) && waitpid(pid, &status, 0) == pid);
	check(WIFSIGNALED(status), "the process that makes buffers has ended: %#x", status);
	eventually(no_buffers, gpu, "buffers are left");
}

const struct test life_tests[] = {
	{ .name = "listed", .run = test_listed },
	{ .name = "killed", .run = test_killed },
	{ .name = "unload-refused", .run = test_unload_refused },
	{ .name = "unbind", .run = test_unbind },
	{ .name = "unplug", .run = test_unplug },
	{}
};
