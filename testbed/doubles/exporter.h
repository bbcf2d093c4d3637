/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's exporters behind blocks: udmabuf on a memfd, or vgem. */
#ifndef DOUBLES_EXPORTER_H
#define DOUBLES_EXPORTER_H

#include <stdbool.h>
#include <stddef.h>

struct block {
	size_t size;
	int device;
	int users;
	unsigned char *host; /* the double's own mapping; programs never get it */
	int memfd;           /* udmabuf; -1 with vgem */
	int drm;             /* vgem; -1 with udmabuf */
	unsigned int handle; /* its GEM handle */
};

int exporter_make(struct block *b);
void exporter_free(struct block *b);

#endif
