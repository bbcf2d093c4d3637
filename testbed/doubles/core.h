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
	void *owner;   /* for the library's use */
	unsigned int flags;
	unsigned long long id; /* never used again */
	struct area *next;
};

/* The other functions need the lock, unless they only read the environment. */
void core_lock(void);
void core_unlock(void);

/* core_knob() returns the variable's number, or its argument; core_knob_is() compares. */
long core_knob(const char *name, long otherwise);
bool core_knob_is(const char *name, const char *value);

/* Logs the call, and returns the code that DOUBLE_FAIL wants of it, or 0. */
int core_call(const char *function, const char *format, ...) __attribute__((format(printf, 2, 3)));

int core_devices(void);
uint64_t core_total(void);
uint64_t core_free_bytes(int device);
/* The PCI address of a device, "0000:d1:00.0". */
void core_pci(int device, char *out, size_t len);
void core_uuid(int device, unsigned char out[16]);

/* Addresses that the CPU cannot read, 2 MiB aligned; 0 if mmap() fails. */
uint64_t core_reserve(size_t size);

/* A block counts its users. A new one has one. */
struct block *core_block(size_t size, int device);
void core_block_get(struct block *b);
void core_block_put(struct block *b);
size_t core_block_size(const struct block *b);

/* An allocation. Small pooled ones share blocks. */
struct area *core_alloc(size_t size, int device, bool pooled);
struct area *core_map(uint64_t addr, size_t size, struct block *b, size_t offset, int device);
struct area *core_find(uint64_t addr);
/* The first area that ends behind addr, or NULL; next leads to the others. */
struct area *core_behind(uint64_t addr);
/* An area of this owner, or NULL. */
struct area *core_owned(const void *owner);
void core_remove(struct area *a);

/* Copies; false if [addr, addr+n) is not allocated as a whole. */
bool core_read(void *to, uint64_t addr, size_t n);
bool core_write(uint64_t addr, const void *from, size_t n);
bool core_fill(uint64_t addr, int value, size_t n);

/* Whether the exporter can export parts of a block; vgem cannot. */
bool core_parts(void);

/*
 * A dma-buf of exactly the pages of [addr, addr+n), which may span mappings; or
 * -errno.
 */
int core_export_range(uint64_t addr, size_t n);
/* A dma-buf of the block that a lies in. */
int core_export_block(const struct area *a);

#endif
