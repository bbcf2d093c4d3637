/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * User interface of /dev/testimporter: attaches to a dma-buf on behalf of a
 * device, maps it, says which addresses the device would use, and, if the
 * device is QEMU's edu, moves bytes at exactly those addresses.
 *
 * Attachments belong to the open file, and end with it. Every structure is the
 * same on 32 and 64 bits, and fields called reserved must be zero.
 */
#ifndef TESTIMPORTER_H
#define TESTIMPORTER_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* A PCI address, such as 0000:01:00.0, or TESTIMPORTER_SOFT. NUL-terminated. */
#define TESTIMPORTER_NAME 32
/* A device on no bus, as software RDMA devices are. */
#define TESTIMPORTER_SOFT "soft"

/* What kind of importer an attachment is. */
enum testimporter_kind {
	/* Has no callback for moves: dma_buf_attach(). */
	TESTIMPORTER_STATIC = 0,
	/* Pins, and cannot stop on a revocation: bnxt_re, efa, mana, ionic. */
	TESTIMPORTER_PINNED = 1,
	/* Pins, and stops for good on a revocation: irdma. */
	TESTIMPORTER_REVOCABLE = 2,
	/* Does not pin, and maps again after a move: mlx5. */
	TESTIMPORTER_DYNAMIC = 3,
};

/* testimporter_attach.flags */
/* The importer can use addresses without a page. */
#define TESTIMPORTER_PEER2PEER 0x1
/*
 * The device reaches the first 4 GiB only, until its next attachment. Without
 * an IOMMU, the kernel copies RAM beyond that through a bounce buffer. EBUSY:
 * the device is not on PCI, or has another driver than this module's.
 */
#define TESTIMPORTER_32BIT 0x2
#define TESTIMPORTER_FLAGS 0x3

/*
 * Attaches to the dma-buf fd, which stays the caller's. Static importers cannot
 * be peer to peer (EINVAL). The call also returns the exporter's errors.
 */
struct testimporter_attach {
	char device[TESTIMPORTER_NAME];
	__s32 fd;
	__u32 kind;
	__u32 flags;
	__u32 id;		/* out: names the attachment from now on */
	__u32 peer2peer;	/* out: 0 if the exporter cleared it */
	__u32 reserved;
};

/* Directions, as the kernel's enum dma_data_direction. */
#define TESTIMPORTER_BIDIRECTIONAL 0
#define TESTIMPORTER_TO_DEVICE 1
#define TESTIMPORTER_FROM_DEVICE 2

/* testimporter_segment.flags */
#define TESTIMPORTER_SEGMENT_PAGE 0x1		/* phys is of a struct page */
#define TESTIMPORTER_SEGMENT_BUS_ADDRESS 0x2	/* marked as PCI bus address */
#define TESTIMPORTER_SEGMENT_SWIOTLB 0x4	/* goes through a bounce buffer */

/* One DMA range. All ranges together are at least as long as the dma-buf. */
struct testimporter_segment {
	__u64 addr;		/* the address for the device */
	__u64 length;
	__u64 phys;		/* with SEGMENT_PAGE */
	__u32 flags;
	__u32 reserved;
};

/*
 * Maps the buffer, and pins it first if the kind pins; returns an existing
 * mapping. EREMOTEIO: revoked. Stores at most max segments; count is the number
 * of all.
 */
struct testimporter_map {
	__u32 id;
	__u32 direction;
	__u64 segments;		/* struct testimporter_segment * */
	__u32 max;
	__u32 count;		/* out */
};

struct testimporter_state {
	__u32 id;
	__u32 peer2peer;	/* out, like all below */
	__u32 mapped;
	__u32 pinned;
	__u32 revoked;
	__u32 reserved;
	__u64 invalidations;	/* calls by the exporter */
	__u64 maps;		/* times it was mapped */
	__u64 size;		/* of the dma-buf, bytes */
};

/*
 * Moves bytes between user memory and the buffer.
 * DMA: with the edu device's engine, at the mapped addresses. After a move, a
 * dynamic importer maps again first. EREMOTEIO: revoked. ENXIO: not mapped.
 * EOPNOTSUPP: the attachment's device has no such engine.
 * COPY: by the CPU, through the exporter's vmap.
 */
struct testimporter_transfer {
	__u32 id;
	__u32 write;		/* 1: from data to the buffer */
	__u64 offset;		/* into the buffer, bytes */
	__u64 length;
	__u64 data;		/* user memory */
};

/* pci_p2pdma_distance(): negative if the kernel finds no path. */
struct testimporter_distance {
	char provider[TESTIMPORTER_NAME];
	char client[TESTIMPORTER_NAME];
	__s32 distance;		/* out */
	__u32 reserved;
};

#define TESTIMPORTER_IOC 'I'
#define TESTIMPORTER_IOC_ATTACH _IOWR(TESTIMPORTER_IOC, 0x40, struct testimporter_attach)
#define TESTIMPORTER_IOC_DETACH _IOW(TESTIMPORTER_IOC, 0x41, __u32)
#define TESTIMPORTER_IOC_MAP _IOWR(TESTIMPORTER_IOC, 0x42, struct testimporter_map)
#define TESTIMPORTER_IOC_UNMAP _IOW(TESTIMPORTER_IOC, 0x43, __u32)
#define TESTIMPORTER_IOC_STATE _IOWR(TESTIMPORTER_IOC, 0x44, struct testimporter_state)
#define TESTIMPORTER_IOC_DMA _IOW(TESTIMPORTER_IOC, 0x45, struct testimporter_transfer)
#define TESTIMPORTER_IOC_COPY _IOW(TESTIMPORTER_IOC, 0x46, struct testimporter_transfer)
#define TESTIMPORTER_IOC_DISTANCE _IOWR(TESTIMPORTER_IOC, 0x47, struct testimporter_distance)

#endif
