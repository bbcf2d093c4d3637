/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers from the dma-buf exporters that a plain kernel has.
 *
 * This program checks the Go packages independently: it shares no code with them
 * and takes the ABI from the kernel's headers alone.
 */
#ifndef EXPORTER_H
#define EXPORTER_H

#include <stddef.h>
#include <stdint.h>

struct buffer {
	int fd;			/* the dma-buf, ours until buffer_free() */
	size_t size;		/* bytes of the dma-buf, may exceed the request */
	uint8_t *map;		/* CPU view of all of it, through the dma-buf */

	int owner_fd;		/* DRM node or memfd behind it, or -1 */
	uint32_t dumb;		/* GEM handle of a dumb buffer, or 0 */
};

/*
 * Allocates at least size bytes from an exporter and maps them.
 *
 * spec is one of
 *	DRIVER			first DRM node with this driver (vgem, virtio_gpu)
 *	/dev/dri/cardN		this node
 *	udmabuf			memfd pages
 *	heap:NAME		/dev/dma_heap/NAME
 *	test:MODE		kernel/testexporter in this mode, such as ok or pin
 *	fd:N			inherited descriptor N; size is ignored
 *
 * Returns 0, or an errno with the step that failed in *stage.
 */
int buffer_alloc(struct buffer *b, const char *spec, size_t size,
		 const char **stage);

/*
 * Gives up everything but the fd: the CPU view, the dumb buffer and its node or
 * memfd. After that only the fd and importers keep the memory.
 */
void buffer_orphan(struct buffer *b);

/* Releases all that b holds. A second call does nothing. */
void buffer_free(struct buffer *b);

/* Brackets CPU access to the view; 0 or an errno. */
int buffer_begin_cpu(const struct buffer *b);
int buffer_end_cpu(const struct buffer *b);

#endif
