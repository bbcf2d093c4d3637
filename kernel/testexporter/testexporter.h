/* SPDX-License-Identifier: GPL-2.0 */
/* How user space asks /dev/testexporter for a dma-buf. */
#ifndef TESTEXPORTER_H
#define TESTEXPORTER_H

#include <linux/ioctl.h>
#include <linux/types.h>

enum testexporter_mode {
	TESTEXPORTER_OK,	/* nothing is wrong with it */
	TESTEXPORTER_NO_VMAP,	/* no vmap at all */
	TESTEXPORTER_IOMEM,	/* vmap says I/O memory */
	TESTEXPORTER_ATTACH,	/* attach fails, EPERM */
	TESTEXPORTER_PIN,	/* pin fails, EBUSY */
	TESTEXPORTER_MAP,	/* mapping the attachment fails, ENXIO */
	TESTEXPORTER_BEGIN_CPU,	/* begin_cpu_access fails, EIO */
	TESTEXPORTER_MODES,
};

struct testexporter_create {
	__u32 mode;
	__u32 pages;
};

/* Returns the fd of a new dma-buf. */
#define TESTEXPORTER_CREATE _IOW('T', 0xe0, struct testexporter_create)

#endif
