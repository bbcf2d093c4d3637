/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The data of the ring buffer and of the configuration map. Package abi
 * (../../abi/abi.go) has the same layouts; a test compares the objects' BTF.
 */
#ifndef GPURDMA_RECORD_H
#define GPURDMA_RECORD_H

#include "helpers.h"

#define RANGES 32
#define RESOURCES 16
#define STEPS 32
#define KINDS 4
#define WINDOWS 512

/* The types of events, which are also the indices of the loss counters. */
enum event_type {
	EVENT_RECORD = 1, /* struct record */
	EVENT_EXPORT,     /* struct export, the rest struct event */
	EVENT_MOVE,
	EVENT_UNMAP,
	EVENT_PIN,
	EVENT_UNPIN,
	EVENT_REVOKE,
	EVENT_DETACH,
	EVENT_DEREG,
	EVENT_RELEASE,
	EVENT_MODULE,   /* struct export: a module was loaded, its name is in exporter */
	EVENT_CALLERS,  /* struct callers */
	EVENT_TRACKING, /* only counted: a map was full */
	EVENT_TYPES,
};

/* Which call a record is about. */
enum record_kind {
	KIND_REG_DMABUF = 1, /* UVERBS_METHOD_REG_DMABUF_MR */
	KIND_REG_MR,         /* UVERBS_METHOD_REG_MR with a descriptor (7.2) */
	KIND_REREG,          /* ib_uverbs_rereg_mr */
	KIND_ATTACH,         /* an attach outside of these */
	KIND_MAP,            /* a map of a known attachment outside of these */
	KIND_INVENTORY,      /* an attachment or buffer from before the tracer */
	KIND_REREG_DMABUF,   /* UVERBS_METHOD_REREG_DMABUF_MR */
	KIND_UMEM,           /* an attach by the RDMA core outside of these */
};

/* Functions whose returns make the chain of a record. */
enum func {
	FUNC_HANDLER = 1,
	FUNC_GET,
	FUNC_ATTACH,
	FUNC_PIN,
	FUNC_MAP,
	FUNC_VMAP,
	FUNC_UMEM_GET,
	FUNC_UMEM_MAP,
	FUNC_RESTRACK,
	FUNC_EXPORTER_ATTACH,
	FUNC_EXPORTER_PIN,
	FUNC_EXPORTER_MAP,
	FUNC_PHYS_VEC,
	FUNC_P2P_TYPE,
	FUNC_P2P_DISTANCE,
	FUNC_DMA_MAP_RESOURCE,
	FUNC_DMA_MAP_SGTABLE,
	FUNC_UNMAP,
	FUNC_DETACH,
	FUNC_UMEM_UNMAP,
};

enum have {
	HAVE_ARGS = 1 << 0,
	HAVE_BUF = 1 << 1,
	HAVE_ATTACH = 1 << 2,
	HAVE_MAP = 1 << 3,
	HAVE_MR = 1 << 4,
	HAVE_PIN = 1 << 5,
	HAVE_UNMAPPED = 1 << 6,
	HAVE_DETACHED = 1 << 7,
	HAVE_DRIVER_OP = 1 << 8,
	HAVE_NO_DRIVER_OP = 1 << 9,
	HAVE_UNTRACKED = 1 << 10, /* a map had no room to follow it */
	HAVE_CACHED = 1 << 11,    /* mapped inside attach */
	HAVE_WALK_CUT = 1 << 12,  /* the walk ended before the list, of entries or attachments */
	HAVE_IOMMU = 1 << 13,     /* the device is in an IOMMU group */
	HAVE_IOMMU_TYPE = 1 << 14,
	HAVE_P2P = 1 << 15,       /* dma_buf_attachment.peer2peer */
	HAVE_ALLOW_P2P = 1 << 16, /* importer_ops->allow_peer2peer */
	HAVE_VMAP = 1 << 17,
	HAVE_IOMEM = 1 << 18,
	HAVE_FD = 1 << 19,
	HAVE_BAD_CHAIN = 1 << 20, /* the list led to an unreadable address */
	HAVE_UMEM = 1 << 21,
	HAVE_UMEM_ARGS = 1 << 22,
	HAVE_OUTSIDE = 1 << 23, /* by a process that the filters leave out */
	HAVE_OTHER_DMA = 1 << 24, /* bus windows, or DMA operations beside the direct ones */
};

/* The bits of flags in struct event. */
enum event_flags {
	EVENT_IN_DEREG = 1 << 0, /* part of a deregistration */
	EVENT_EXITING = 1 << 1,  /* the thread is ending */
	EVENT_IN_REREG = 1 << 2, /* part of a re-registration with other memory */
};

struct head {
	u32 type;
	u32 cpu;
	u64 time; /* CLOCK_MONOTONIC, ns */
	u64 id;   /* of the registration or attachment */
};

struct event {
	struct head h;
	u64 object; /* the attachment's or MR's address */
	u64 dmabuf;
	u64 inode;
	u32 tgid;
	u32 tid;
	s32 ret;
	u32 flags;
};

struct export {
	struct event e;
	u64 size;
	char exporter[24];
	char owner[24];
	char comm[16];
};

/* The argument of reclaim(): a slot, and the thread that has it. */
struct holding {
	u32 what;
	u32 slot;
	u64 thread;
};

/* The callers, as the kernel names them: "function" or "function [module]". */
#define CALLERS 24
#define CALLER_NAME 64

struct callers {
	struct event e;
	char name[CALLERS][CALLER_NAME]; /* the innermost first */
};

struct range {
	u64 start;
	u64 size;
};

struct resource {
	u64 phys;
	u64 dma;
	u64 size;
};

/* Sums over one view of a mapping. */
struct tally {
	u64 bytes[KINDS];
	u64 low[KINDS];
	u64 high[KINDS];
	u32 entries;
	u32 pad;
};

struct step {
	u8 func;
	u8 pad;
	u16 arg; /* an exporter's function: its cookie; FUNC_P2P_TYPE: the map_type */
	s32 ret;
	u64 time;
};

struct devinfo {
	char name[32];
	char bus[16];
	char pci[16]; /* the nearest PCI ancestor */
	u32 depth;    /* levels up to that ancestor; 0: the device itself */
	u32 iommu_type;
};

struct record {
	struct head h;
	u64 start;
	s32 ret;
	u32 kind;
	u32 have;
	u32 tgid;
	u32 tid;
	s32 fd;
	char comm[16];
	u64 cgroup;
	/* the caller's arguments */
	u64 offset;
	u64 length;
	u64 iova;
	u32 access;
	u32 map_type;
	char ibdev[64];
	/* the buffer */
	u64 dmabuf;
	u64 inode;
	u64 size;
	u64 op_attach;
	u64 op_pin;
	u64 op_map;
	char exporter[24];
	char owner[24];
	/* the attachment */
	u64 attach;
	u64 importer_ops;
	u64 importer_cb;
	u64 importer_priv;
	struct devinfo dev;
	/* the mapping */
	u64 sgt;
	u64 mapped_at;
	u32 nents;
	u32 orig_nents;
	u32 dma_flags;
	s32 distance;
	u64 displaced;
	u64 opaque; /* bytes with a page of unknown address */
	struct tally dma;
	struct tally pages;
	struct tally res;
	char provider[16]; /* the exporting PCI function (7.2) */
	/* other attachments of a buffer that may move, when it was mapped */
	u32 reach;    /* the kernel's answer about the way, as map_type */
	u32 reach_pad;
	u32 n_others; /* at most OTHERS are looked at; of a buffer in the inventory, all */
	u32 n_barred; /* of them, without permission for peer-to-peer */
	char barred[32]; /* the first such device */
	/* the MR */
	u64 mr;
	u64 mr_iova;
	u64 mr_length;
	u32 mrn;
	u32 pdn;
	u32 lkey;
	u32 rkey;
	u32 n_steps;
	u32 n_ranges;    /* merged ranges, kept or not */
	u32 n_resources; /* merged, kept or not */
	u32 n_attach;
	struct step steps[STEPS];
	/* The record goes out up to the last resource, or without any, up to the last range. */
	struct range ranges[RANGES];
	struct resource resources[RESOURCES];
};

/* Attachments of one buffer that are looked at when it is mapped. */
#define OTHERS 32

/* A window of the physical address space. */
struct window {
	u64 start;
	u64 end;
	u64 kind;
};

enum config_flags {
	CONFIG_PIDS = 1 << 0,
	CONFIG_CGROUP = 1 << 1,
	CONFIG_INODES = 1 << 2,
	CONFIG_EXPORTS = 1 << 3,
	CONFIG_RDMA_ONLY = 1 << 4, /* no record for other importers */
	CONFIG_STOPPED = 1 << 5,
};

struct config {
	u64 next_id; /* counted up by the programs */
	u64 vmemmap; /* address of vmemmap_base; 0: there is none */
	u64 pages;   /* without it: address of struct page 0; 0: page addresses are unknown */
	u64 wake;    /* bytes in the ring that wake the reader */
	u32 flags;
	u32 walk;    /* entries of a scatter list that are read at most */
	u32 page_shift;
	u32 pad;
};

#endif
