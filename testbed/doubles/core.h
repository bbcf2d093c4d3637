/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory of the doubles: pages that a real exporter of the kernel turns
 * into dma-bufs, at addresses that the CPU cannot read.
 */
#ifndef DOUBLES_CORE_H
#define DOUBLES_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block; /* pages, and the one descriptor that owns them */

/* An allocation, or a mapping of the virtual memory API. */
struct area {
	uint64_t addr;
	size_t size;
	struct block *block;
	size_t offset; /* in the block */
	int device;
	void *owner;   /* the library's own */
	unsigned int flags;
	unsigned long long id; /* that no other has had */
	struct area *next;
};

/* Everything below is called with the lock held, but for the first two. */
void core_lock(void);
void core_unlock(void);

/* What the environment wants: a number, or what otherwise holds. */
long core_knob(const char *name, long otherwise);
bool core_knob_is(const char *name, const char *value);

/* The code that DOUBLE_FAIL wants of this call, 0 for none; also logs it. */
int core_call(const char *function, const char *format, ...) __attribute__((format(printf, 2, 3)));

int core_devices(void);
uint64_t core_total(void);
uint64_t core_free_bytes(int device);
/* The PCI address of a device, "0000:d1:00.0". */
void core_pci(int device, char *out, size_t len);
void core_uuid(int device, unsigned char out[16]);

/* Addresses that the CPU cannot read, 2 MiB aligned; 0 if there are none. */
uint64_t core_reserve(size_t size);

/* Blocks count who uses them. A new one has one user. */
struct block *core_block(size_t size, int device);
void core_block_get(struct block *b);
void core_block_put(struct block *b);
size_t core_block_size(const struct block *b);

/* Allocations. pooled ones share blocks. */
struct area *core_alloc(size_t size, int device, bool pooled);
struct area *core_map(uint64_t addr, size_t size, struct block *b, size_t offset, int device);
struct area *core_find(uint64_t addr);
/* The first that ends behind addr, NULL if there is none; the others follow it. */
struct area *core_behind(uint64_t addr);
/* One that this owner has, NULL if there is none. */
struct area *core_owned(const void *owner);
void core_remove(struct area *a);

/* Copies; false if [addr, addr+n) is not allocated as a whole. */
bool core_read(void *to, uint64_t addr, size_t n);
bool core_write(uint64_t addr, const void *from, size_t n);
bool core_fill(uint64_t addr, int value, size_t n);

/* Whether the exporter can do parts of a block; vgem cannot. */
bool core_parts(void);

/*
 * A dma-buf of exactly the pages of [addr, addr+n), which may span mappings;
 * -errno if that cannot be.
 */
int core_export_range(uint64_t addr, size_t n);
/* A dma-buf of the block that a lies in. */
int core_export_block(const struct area *a);

#endif
