/* SPDX-License-Identifier: GPL-2.0 */
/* The patched rdma_rxe as an importer of the software GPU's buffers. */
#ifndef NIC_H
#define NIC_H

#include "loopback.h"
#include "mr.h"
#include "testlib.h"

/* No offset is as large: a test fails if rxe takes one for the other. */
#define IOVA_BASE 0x7a0000000000ull

enum { PINNED, REVOCABLE, DYNAMIC, IMPORTER_KINDS };
extern const char *const importer_kinds[IMPORTER_KINDS];

/* Two queue pairs of one RDMA device, and host memory for the other end. */
struct nic {
	char name[32];
	char bdf[32];		/* PCI function it attaches for, or "soft" */
	struct loopback lb;
};

/* Skips the test by not_here() without the device or without the patch. */
struct nic *nic_open(const char *name);
void nic_close(struct nic *nic);

/* Registers all of a buffer as this kind of importer. 0 or -errno. */
int nic_register(struct nic *nic, struct buffer *buf, int kind, bool p2p, struct mr *mr);
/* The same, as the kind of importer that the device already is. */
int nic_register_as_is(struct nic *nic, struct buffer *buf, struct mr *mr);
void nic_deregister(struct nic *nic, struct mr *mr);

/*
 * RDMA WRITE or READ between these bytes and an offset of the buffer. Returns
 * how the request completed. After an error they make new queue pairs.
 */
enum ibv_wc_status nic_write(struct nic *nic, struct mr *mr, uint64_t offset,
			     const void *bytes, size_t size);
enum ibv_wc_status nic_read(struct nic *nic, struct mr *mr, uint64_t offset, void *bytes,
			    size_t size);
enum ibv_wc_status nic_fetch_add(struct nic *nic, struct mr *mr, uint64_t offset,
				 uint64_t add, uint64_t *old);
/* A WRITE the other way: the buffer is the local end. */
enum ibv_wc_status nic_write_from(struct nic *nic, struct mr *mr, uint64_t offset,
				  void *bytes, size_t size);

#define check_status(got, want) \
	do { \
		enum ibv_wc_status got_ = (got); \
		check(got_ == (want), #got ": %s", ibv_wc_status_str(got_)); \
	} while (0)

#endif
