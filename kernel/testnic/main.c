// SPDX-License-Identifier: GPL-2.0
/*
 * The test NIC: an RDMA device on any PCI function that a test binds to it by
 * driver_override. It transfers no data. Tests use it for what the RDMA core of
 * Linux 7.3 does with dma-bufs and rdma_rxe does not: buffers of queues,
 * completion counters, and dma-bufs of the device's own BAR.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/slab.h>

#include "testnic.h"

struct testnic_ucontext {
	struct ib_ucontext ibuc;
	struct rdma_user_mmap_entry *bar;
};

struct testnic_pd {
	struct ib_pd ibpd;
};

static struct testnic *to_nic(struct ib_device *ibdev)
{
	return container_of(ibdev, struct testnic, ibdev);
}

static int query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			struct ib_udata *udata)
{
	attr->max_qp = 1 << 10;
	attr->max_qp_wr = 1 << 10;
	attr->max_cq = 1 << 10;
	attr->max_cqe = 1 << 10;
	attr->max_mr = 1 << 10;
	attr->max_mr_size = ~0ULL;
	attr->max_pd = 1 << 10;
	attr->page_size_cap = PAGE_SIZE;
	return 0;
}

static int query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr)
{
	attr->state = IB_PORT_DOWN;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_4096;
	attr->gid_tbl_len = 1;
	attr->pkey_tbl_len = 1;
	return 0;
}

static int get_port_immutable(struct ib_device *ibdev, u32 port,
			      struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = 1;
	immutable->pkey_tbl_len = 1;
	return 0;
}

static enum rdma_link_layer get_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_UNSPECIFIED;
}

static int query_gid(struct ib_device *ibdev, u32 port, int index, union ib_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	return 0;
}

static int query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	*pkey = 0xffff;
	return 0;
}

/* User space finds the whole BAR at offset 0 of the device's file. */
static int alloc_ucontext(struct ib_ucontext *ibuc, struct ib_udata *udata)
{
	struct testnic_ucontext *uc = container_of(ibuc, struct testnic_ucontext, ibuc);
	struct testnic *nic = to_nic(ibuc->device);
	int err;

	uc->bar = kzalloc(sizeof(*uc->bar), GFP_KERNEL);
	if (!uc->bar)
		return -ENOMEM;
	err = rdma_user_mmap_entry_insert_exact(ibuc, uc->bar,
						pci_resource_len(nic->pdev, nic->bar), 0);
	if (err)
		kfree(uc->bar);
	return err;
}

static void dealloc_ucontext(struct ib_ucontext *ibuc)
{
	rdma_user_mmap_entry_remove(container_of(ibuc, struct testnic_ucontext, ibuc)->bar);
}

static void mmap_free(struct rdma_user_mmap_entry *entry)
{
	kfree(entry);
}

static int mmap_get_pfns(struct rdma_user_mmap_entry *entry, struct phys_vec *vec,
			 struct p2pdma_provider **provider)
{
	struct testnic *nic = to_nic(entry->ucontext->device);

	vec->paddr = pci_resource_start(nic->pdev, nic->bar);
	vec->len = entry->npages * PAGE_SIZE;
	*provider = pcim_p2pdma_provider(nic->pdev, nic->bar);
	return *provider ? 0 : -EOPNOTSUPP;
}

static struct rdma_user_mmap_entry *pgoff_to_mmap_entry(struct ib_ucontext *ibuc, off_t offset)
{
	return rdma_user_mmap_entry_get_pgoff(ibuc, offset >> PAGE_SHIFT);
}

/* The device does no work that would have to stop. */
static void disassociate_ucontext(struct ib_ucontext *ibuc)
{
}

static int alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static const struct ib_device_ops testnic_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = 1,
	.alloc_pd = alloc_pd,
	.alloc_ucontext = alloc_ucontext,
	.dealloc_pd = dealloc_pd,
	.dealloc_ucontext = dealloc_ucontext,
	.disassociate_ucontext = disassociate_ucontext,
	.get_link_layer = get_link_layer,
	.get_port_immutable = get_port_immutable,
	.mmap_free = mmap_free,
	.mmap_get_pfns = mmap_get_pfns,
	.pgoff_to_mmap_entry = pgoff_to_mmap_entry,
	.query_device = query_device,
	.query_gid = query_gid,
	.query_pkey = query_pkey,
	.query_port = query_port,
	INIT_RDMA_OBJ_SIZE(ib_pd, testnic_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, testnic_ucontext, ibuc),
};

static int largest_bar(struct pci_dev *pdev)
{
	int i, best = -ENODEV;

	for (i = 0; i < PCI_STD_NUM_BARS; i++)
		if (pci_resource_flags(pdev, i) & IORESOURCE_MEM &&
		    (best < 0 || pci_resource_len(pdev, i) > pci_resource_len(pdev, best)))
			best = i;
	return best;
}

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct testnic *nic;
	int err, bar;

	bar = largest_bar(pdev);
	if (bar < 0)
		return bar;
	err = pcim_enable_device(pdev);
	if (!err)
		err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (!err)
		err = pcim_p2pdma_init(pdev);
	if (err)
		return err;
	pci_set_master(pdev);

	nic = ib_alloc_device(testnic, ibdev);
	if (!nic)
		return -ENOMEM;
	nic->pdev = pdev;
	nic->bar = bar;
	nic->ibdev.node_type = RDMA_NODE_UNSPECIFIED;
	nic->ibdev.node_guid = cpu_to_be64(pci_dev_id(pdev) + 1);
	nic->ibdev.phys_port_cnt = 1;
	nic->ibdev.num_comp_vectors = 1;
	nic->ibdev.dev.parent = &pdev->dev;
	nic->ibdev.driver_def = testnic_uapi;
	ib_set_device_ops(&nic->ibdev, &testnic_ops);
	ib_set_device_ops(&nic->ibdev, &testnic_objects);
	err = ib_register_device(&nic->ibdev, "testnic%d", &pdev->dev);
	if (err) {
		ib_dealloc_device(&nic->ibdev);
		return err;
	}
	pci_set_drvdata(pdev, nic);
	return 0;
}

static void remove(struct pci_dev *pdev)
{
	struct testnic *nic = pci_get_drvdata(pdev);

	ib_unregister_device(&nic->ibdev);
	ib_dealloc_device(&nic->ibdev);
}

static struct pci_driver testnic_driver = {
	.name = "testnic",
	.probe = probe,
	.remove = remove,
};
module_pci_driver(testnic_driver);

MODULE_DESCRIPTION("RDMA device for tests of what the core does with dma-bufs");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("DMA_BUF");
