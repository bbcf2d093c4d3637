/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's types, with only the fields that the programs read. CO-RE finds these
 * fields wherever the running kernel keeps them; a suffix after ___ names the variants
 * of one type.
 */
#ifndef GPURDMA_KERNEL_H
#define GPURDMA_KERNEL_H

#include "helpers.h"

/* include/linux/kobject.h, device.h, device/bus.h */
struct kobject {
	const char *name;
} PAI;

struct bus_type {
	const char *name;
} PAI;

/* drivers/iommu/iommu.c, include/linux/iommu.h */
struct iommu_domain {
	unsigned int type;
} PAI;

struct iommu_group {
	struct iommu_domain *domain;
} PAI;

struct device {
	struct kobject kobj;
	struct device *parent;
	const char *init_name;
	struct bus_type *bus;
	struct iommu_group *iommu_group;
	const struct bus_dma_region *dma_range_map;
} PAI;

struct device___ops { /* if the architecture has DMA operations beside the direct ones */
	const struct dma_map_ops *dma_ops;
} PAI;

/* include/linux/fs.h, dcache.h, module.h, sched.h, list.h */
struct super_block {
	unsigned long s_magic;
} PAI;

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
} PAI;

struct file {
	struct inode *f_inode;
	void *private_data;
} PAI;

struct dentry {
	void *d_fsdata;
} PAI;

struct module {
	char name[56];
} PAI;

#define PF_EXITING 0x4

typedef struct {
	int counter;
} PAI atomic_t;

struct signal_struct {
	atomic_t live; /* threads that have not begun to end */
} PAI;

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	struct signal_struct *signal;
	char comm[16];
} PAI;

struct list_head {
	struct list_head *next;
} PAI;

/* include/linux/scatterlist.h. page_link: bit 0 marks a chain entry, bit 1 the last one. */
struct scatterlist {
	unsigned long page_link;
	unsigned int offset;
	unsigned int length;
	unsigned long long dma_address;
	unsigned int dma_length;
} PAI;

struct scatterlist___flags { /* CONFIG_NEED_SG_DMA_FLAGS */
	unsigned int dma_flags;
} PAI;

struct sg_table {
	struct scatterlist *sgl;
	unsigned int nents;
	unsigned int orig_nents;
} PAI;

struct page {
	unsigned long flags;
} PAI;

/* include/linux/dma-buf.h */
struct dma_buf_ops {
	void *attach;
	void *pin;
	void *map_dma_buf;
} PAI;

struct dma_buf {
	unsigned long size;
	struct file *file;
	struct list_head attachments;
	struct dma_buf_ops *ops;
	const char *exp_name;
	struct module *owner;
} PAI;

struct dma_buf_attach_ops {
	bool allow_peer2peer;
} PAI;

struct dma_buf_attach_ops___notify { /* up to 6.12 */
	void *move_notify;
} PAI;

struct dma_buf_attach_ops___invalidate { /* 7.2 */
	void *invalidate_mappings;
} PAI;

struct dma_buf_attachment {
	struct dma_buf *dmabuf;
	struct device *dev;
	struct list_head node;
	bool peer2peer;
	struct dma_buf_attach_ops *importer_ops;
	void *importer_priv;
} PAI;

struct dma_buf_attachment___cached { /* up to 6.12 */
	struct sg_table *sgt;
} PAI;

struct dma_buf_export_info {
	const char *exp_name;
} PAI;

/* include/linux/iosys-map.h */
struct iosys_map {
	bool is_iomem;
} PAI;

/* include/linux/pci-p2pdma.h. The numbers differ between kernels. */
enum pci_p2pdma_map_type {
	PCI_P2PDMA_MAP_NOT_SUPPORTED = 1,
	PCI_P2PDMA_MAP_BUS_ADDR = 2,
	PCI_P2PDMA_MAP_THRU_HOST_BRIDGE = 3,
};

enum pci_p2pdma_map_type___none { /* 7.2 */
	PCI_P2PDMA_MAP_NONE = 1,
};

struct pci_dev {
	struct device dev;
} PAI;

struct p2pdma_provider { /* 7.2 */
	struct device *owner;
} PAI;

struct phys_vec { /* 7.2 */
	unsigned long long paddr;
	unsigned long len;
} PAI;

/* include/rdma/restrack.h */
enum rdma_restrack_type {
	RDMA_RESTRACK_MR = 4,
};

struct rdma_restrack_entry {
	enum rdma_restrack_type type;
	unsigned int id;
} PAI;

/* include/rdma/ib_verbs.h */
struct ib_device_ops {
	void *reg_user_mr_dmabuf;
} PAI;

struct ib_device {
	struct ib_device_ops ops;
	char name[64];
} PAI;

struct ib_pd {
	struct rdma_restrack_entry res;
} PAI;

struct ib_mr {
	struct ib_device *device;
	struct ib_pd *pd;
	unsigned int lkey;
	unsigned int rkey;
	unsigned long long iova;
	unsigned long long length;
	struct rdma_restrack_entry res;
} PAI;

/* include/rdma/uverbs_ioctl.h, drivers/infiniband/core/uverbs.h */
struct ib_uverbs_device {
	struct ib_device *ib_dev;
} PAI;

struct ib_uverbs_file {
	struct ib_uverbs_device *device;
} PAI;

struct uverbs_ptr_attr {
	unsigned long long data;
	unsigned short len;
} PAI;

struct ib_uobject {
	void *object;
} PAI;

struct uverbs_obj_attr {
	struct ib_uobject *uobject;
} PAI;

struct uverbs_attr {
	struct uverbs_ptr_attr ptr_attr;
	struct uverbs_obj_attr obj_attr;
} PAI;

struct uverbs_attr_bundle {
	struct ib_uverbs_file *ufile;
	unsigned long attr_present[1];
	struct uverbs_attr attrs[0];
} PAI;

/* include/linux/bpf.h: the arguments of iterators' programs */
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} PAI;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
} PAI;

/* kernel/kallsyms.c. Names may be longer, but none that the loader asks for is. */
struct kallsym_iter {
	unsigned long value;
	char type;
	char name[128];
	char module_name[56];
} PAI;

struct bpf_iter__ksym { /* 6.0 */
	struct bpf_iter_meta *meta;
	struct kallsym_iter *ksym;
} PAI;

struct bpf_iter__dmabuf { /* 6.16 */
	struct bpf_iter_meta *meta;
	struct dma_buf *dmabuf;
} PAI;

#endif
