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

static void test_killed(struct gpu *gpu)
{
	int pipefd[2], imp, id;
	pid_t pid;
	char c;

	check(!pipe(pipefd));
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		struct gpu *own = gpu_open(gpu->bdf);
		struct buffer *buf = buffer_new(own, MIB, SYSTEM | VRAM);

		imp = importer_open();
		id = importer_attach(imp, near_edu, buf->fd, TESTIMPORTER_PINNED, true);
		check(id > 0 && importer_map(imp, id, NULL, 0) > 0);
		buf->map[0] = 1;
		check(write(pipefd[1], "x", 1) == 1);
		pause();
		_exit(0);
	}
	close(pipefd[1]);
	check(read(pipefd[0], &c, 1) == 1);
	check(gpu_buffers(gpu) == 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	eventually(no_buffers, gpu, "a killed process leaves its buffer");
	close(pipefd[0]);
}

static int delete_module(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

/* With a dma-buf alive, the module stays, and says so. */
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

/* Takes the device away in one of two ways, while everything is in use. */
static void lose_device(struct gpu *gpu, bool unplug)
{
	struct buffer *pinned, *moving;
	int imp = importer_open(), pin_id, move_id, fd;
	unsigned char bytes[64], back[64];
	char bdf[32];
	bool p2p;

	strcpy(bdf, gpu->bdf);
	check_errno(gpu_put(gpu, "behaviour", "amdgpu"), 0);
	check_errno(gpu_put(gpu, "pin_rule", "vram"), 0);
	p2p = kernel_has_p2p(imp, gpu);
	pinned = buffer_new(gpu, MIB, SYSTEM | VRAM);
	moving = buffer_new(gpu, MIB, SYSTEM | VRAM);
	nonce(bytes, sizeof(bytes));
	memcpy(pinned->map, bytes, sizeof(bytes));
	moving->map[0] = 1;
	pin_id = importer_attach(imp, near_edu, pinned->fd, TESTIMPORTER_PINNED, true);
	check(pin_id > 0 && importer_map(imp, pin_id, NULL, 0) > 0);
	move_id = importer_attach(imp, near_edu, moving->fd, TESTIMPORTER_DYNAMIC, true);
	check(move_id > 0 && importer_map(imp, move_id, NULL, 0) > 0);

	if (unplug) {
		check_errno(gpu_put(gpu, "unplug", "now"), 0);
		eventually(absent, bdf, "the device is still there");
	} else {
		check_errno(put("/sys/bus/pci/drivers/softgpu/unbind", "%s", bdf), 0);
		check(unbound(bdf));
	}

	check(is_gone(pinned->map) && is_gone(moving->map), "the CPU still sees the buffer");
	/* The pinned mapping was promised to stay, and does. */
	check_errno(importer_transfer(imp, true, pin_id, false, 0, back, sizeof(back)), 0);
	check(!memcmp(bytes, back, sizeof(back)));
	if (p2p)
		check_errno(importer_transfer(imp, true, move_id, false, 0, back, 1), -ENODEV);
	check_errno(importer_attach(imp, near_edu, moving->fd, TESTIMPORTER_DYNAMIC, true),
		    -ENODEV);
	check(buffer_export(gpu, moving->handle) < 0);

	/* Its VRAM is in use: nobody else gets the device. */
	if (unplug)
		check_errno(put("/sys/bus/pci/rescan", "1"), 0);
	if (p2p) {
		fd = put("/sys/bus/pci/drivers/softgpu/bind", "%s", bdf);
		check(fd == -EBUSY || (unplug && fd < 0), "bind: %d", fd);
		check(unbound(bdf));
	}
	close(imp);
	munmap(pinned->map, pinned->size);
	munmap(moving->map, moving->size);
	close(pinned->fd);
	close(moving->fd);
	gpu_close(gpu);
	if (unbound(bdf))
		check_errno(put("/sys/bus/pci/drivers/softgpu/bind", "%s", bdf), 0);
	eventually(bound, bdf, "the device does not come back");
	free(pinned);
	free(moving);

	gpu = gpu_open(bdf);
	check(!gpu_buffers(gpu));
	check(!bar_holds(gpu, bytes, sizeof(bytes)), "VRAM was not wiped");
	buffer_free(buffer_new(gpu, MIB, SYSTEM | VRAM));
	gpu_close(gpu);
}

static void test_unbind(struct gpu *gpu)
{
	lose_device(gpu_open(gpu->bdf), false);
}

static void test_unplug(struct gpu *gpu)
{
	lose_device(gpu_open(gpu->bdf), true);
}

const struct test life_tests[] = {
	{ .name = "killed", .run = test_killed },
	{ .name = "unload-refused", .run = test_unload_refused },
	{ .name = "unbind", .run = test_unbind },
	{ .name = "unplug", .run = test_unplug },
	{}
};
