/* SPDX-License-Identifier: GPL-2.0 */
/* Checks, buffers and importers for the tests of the software GPU. */
#ifndef TESTLIB_H
#define TESTLIB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "testimporter.h"

#define MIB (1024UL * 1024)
/* Exit status of a test that cannot run here. */
#define NOT_HERE 77

/* A failed check ends the test: what comes after it would prove nothing. */
#define check(cond, ...) \
	do { \
		if (!(cond)) \
			failed(__FILE__, __LINE__, #cond, "" __VA_ARGS__); \
	} while (0)
/* got is a result where errors are negative errnos. */
#define check_errno(got, want) failed_unless_errno(__FILE__, __LINE__, #got, got, want)

void failed(const char *file, int line, const char *what, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 4, 5)));
void failed_unless_errno(const char *file, int line, const char *what, int got, int want);

/*
 * Ends a test that has nothing to test on this kernel or machine. It counts as
 * skipped if SOFTGPU_MAY_SKIP has its name, and as failed otherwise.
 */
void not_here(const char *why) __attribute__((noreturn));

/* One bound software GPU. */
struct gpu {
	char bdf[32];
	char personality[32];
	char behaviour[32];		/* set and read by test-life.c only */
	int drm;			/* render node */
	uint64_t bar;			/* physical address */
	uint64_t bar_size;
	char bar_file[128];		/* in sysfs */
};

/* Where a buffer may be, as a mask. VISIBLE: if in VRAM, then in the BAR. */
enum { SYSTEM = 1, VRAM = 2, VISIBLE = 4 };

struct buffer {
	struct gpu *gpu;
	uint32_t handle;
	uint64_t size;
	int fd;				/* dma-buf */
	uint64_t inode;
	unsigned char *map;
};

/* ioctl() with -errno as its result. */
int call(int fd, unsigned long request, void *arg);
void forget_warnings(void);
void expect_vmap_warning(void);
/* Writes a file; 0 or -errno. */
int put(const char *path, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reads a small file without its newline. */
void get(const char *path, char *text, size_t size);

struct gpu *gpu_open(const char *bdf);
void gpu_close(struct gpu *gpu);
/* Writes to the device's debugfs file. */
int gpu_put(struct gpu *gpu, const char *file, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* By the personality's own ioctls. 0 or -errno. */
int buffer_create(struct gpu *gpu, uint64_t size, unsigned int places, uint32_t *handle);
int buffer_offset(struct gpu *gpu, uint32_t handle, uint64_t *offset);
/* Creates a buffer, exports it and maps it through the DRM node. */
struct buffer *buffer_new(struct gpu *gpu, uint64_t size, unsigned int places);
int buffer_export(struct gpu *gpu, uint32_t handle);
void buffer_free(struct buffer *buf);
/* From debugfs: where the buffer is ("vram", "system", ...), and a count. */
void buffer_place(struct buffer *buf, char *place);
long buffer_count(struct buffer *buf, const char *key);
void check_place(struct buffer *buf, const char *want);
/* How many buffers the device has. */
int gpu_buffers(struct gpu *gpu);

/* A fresh pattern, and whether the BAR holds it. */
void nonce(unsigned char *bytes, size_t size);
bool bar_holds(struct gpu *gpu, const unsigned char *bytes, size_t size);

/* Results are -errno, the id of an attachment or the number of segments. */
int importer_open(void);
int importer_attach(int imp, const char *device, int fd, unsigned int kind, bool p2p);
int importer_map(int imp, int id, struct testimporter_segment *segs, uint32_t max);
int importer_unmap(int imp, int id);
int importer_detach(int imp, int id);
int importer_transfer(int imp, bool dma, int id, bool write, uint64_t offset, void *data,
		      uint64_t size);
struct testimporter_state importer_state(int imp, int id);
int importer_distance(int imp, const char *provider, const char *client);

/* Waits for what the kernel does after a process or device is gone. */
void eventually(bool (*so)(void *arg), void *arg, const char *what);
bool no_buffers(void *gpu);
bool unbound(void *bdf);
bool bound(void *bdf);

/* The edu devices of tests/machine.json. */
extern const char *near_edu, *far_edu;
/* Whether an IOMMU translates the device's addresses. */
bool translated(const char *device);
/* If it has none, SOFTGPU_HAS_P2PDMA in the environment fails the test. */
bool kernel_has_p2p(int imp, struct gpu *gpu);

struct test {
	const char *name;
	void (*run)(struct gpu *gpu);
	bool on_request;		/* only if named: run.sh prepares */
};

extern const struct test ioctl_tests[], memory_tests[], importer_tests[], fault_tests[],
	life_tests[], rdma_tests[];

#endif
