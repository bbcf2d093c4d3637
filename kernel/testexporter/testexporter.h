/* SPDX-License-Identifier: GPL-2.0 */
/* How user space asks /dev/testexporter for a dma-buf. */
#ifndef TESTEXPORTER_H
#define TESTEXPORTER_H

#include <linux/ioctl.h>
#include <linux/types.h>

enum testexporter_mode {
	TESTEXPORTER_OK,	/* no fault */
	TESTEXPORTER_NO_VMAP,	/* no vmap at all */
	TESTEXPORTER_IOMEM,	/* vmap says I/O memory */
	TESTEXPORTER_ATTACH,	/* attach fails, EPERM */
	TESTEXPORTER_PIN,	/* pin fails, EBUSY */
	TESTEXPORTER_MAP,	/* mapping the attachment fails, ENXIO */
	TESTEXPORTER_BEGIN_CPU,	/* begin_cpu_access fails, EIO */

	/*
	 * Scatter lists that no driver of the testbed makes. Buffers with memory
	 * of a BAR have no vmap. BAR memory without pages is the BAR's start.
	 */
	TESTEXPORTER_NO_PAGES,	/* RAM, the entries have addresses only */
	TESTEXPORTER_BAR,	/* a BAR's addresses as they are, no pages */
	TESTEXPORTER_HALVES,	/* RAM, then BAR as above */
	TESTEXPORTER_HALVES_DMA, /* RAM, then BAR by dma_map_resource() */
	TESTEXPORTER_P2PMEM,	/* a BAR's ZONE_DEVICE pages */
	TESTEXPORTER_HALVES_P2PMEM, /* RAM, then BAR as above */

	TESTEXPORTER_NESTED,	/* attach attaches the device to another buffer too */
	TESTEXPORTER_MODES,
};

#define TESTEXPORTER_NAME 32

/*
 * device is the PCI address of a device without a driver, such as 0000:01:00.0.
 * Only modes with memory of a BAR use it and the number of the BAR.
 */
struct testexporter_create {
	__u32 mode;
	__u32 pages;
	char device[TESTEXPORTER_NAME];
	__u32 bar;
	__u32 reserved;
};

/* Returns the fd of a new dma-buf. */
#define TESTEXPORTER_CREATE _IOW('T', 0xe0, struct testexporter_create)

/*
 * Notifies importers of a move of the dma-buf whose fd is the argument. EBUSY:
 * an importer has pinned it. EINVAL: it is another exporter's.
 */
#define TESTEXPORTER_MOVE _IO('T', 0xe1)

#endif
