/* SPDX-License-Identifier: GPL-2.0 */
/* An RDMA device that transfers no data: docs/reference/softgpu.md. */
#ifndef TESTNIC_H
#define TESTNIC_H

#include <linux/pci.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

/* Attributes of UVERBS_METHOD_COMP_CNTR_CREATE, a struct ib_uverbs_buffer_desc each. */
enum {
	TESTNIC_COMP_BUFFER = 1U << UVERBS_ID_NS_SHIFT,
	TESTNIC_ERR_BUFFER,
};

struct testnic {
	struct ib_device ibdev;
	struct pci_dev *pdev;
	int bar; /* the one that it exports */
};

extern const struct uapi_definition testnic_uapi[];
extern const struct ib_device_ops testnic_objects;

#endif
