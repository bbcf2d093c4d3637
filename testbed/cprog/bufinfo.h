/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's own counts of what is still allocated and open. */
#ifndef BUFINFO_H
#define BUFINFO_H

struct held {
	long buffers;		/* dma-bufs in the system */
	long attachments;	/* by rxe, to any of them */
	long fds;		/* open in this process */
	long slab_kib;		/* unreclaimable slab of the system */
	long vmalloc_kib;	/* vmalloc in use */
};

/* 0, or an errno with the file that can not be read in *path. */
int held_now(struct held *h, const char **path);

#endif
