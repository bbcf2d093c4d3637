// SPDX-License-Identifier: GPL-2.0
/*
 * QEMU's edu device: a DMA engine between its 4 KiB of memory and any address
 * (QEMU's docs/specs/edu.rst). It needs dma_mask=0xffffffffffffffff.
 *
 * It uses an address from a dma-buf unchanged, as a NIC does. Bytes that arrive
 * therefore prove the address, which a copy by the CPU does not.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/iopoll.h>
#include <linux/uaccess.h>

#include "importer.h"

#define EDU_ID 0x00
#define EDU_ID_MASK 0xff
#define EDU_ID_VALUE 0xed
#define EDU_DMA_SOURCE 0x80
#define EDU_DMA_DEST 0x88
#define EDU_DMA_COUNT 0x90
#define EDU_DMA_COMMAND 0x98
#define EDU_DMA_RUN 0x1
#define EDU_DMA_FROM_EDU 0x2
#define EDU_MEMORY 0x40000

/* A transfer of more than half of the memory stops the machine in QEMU 7.2. */
#define EDU_CHUNK 2048
/* A transfer takes 100 ms; a device that hangs must not hang the kernel. */
#define EDU_TIMEOUT_US (10 * USEC_PER_SEC)

struct edu {
	void __iomem *regs;
	void *bounce;
	dma_addr_t bounce_addr;
	bool stuck;
};

/* One transfer between the engine's memory and an address. */
static int run_engine(struct edu *edu, dma_addr_t addr, size_t len, bool from_edu)
{
	u32 command;
	int ret;

	if (edu->stuck)
		return -EIO;
	writeq(from_edu ? EDU_MEMORY : addr, edu->regs + EDU_DMA_SOURCE);
	writeq(from_edu ? addr : EDU_MEMORY, edu->regs + EDU_DMA_DEST);
	writeq(len, edu->regs + EDU_DMA_COUNT);
	writeq(EDU_DMA_RUN | (from_edu ? EDU_DMA_FROM_EDU : 0), edu->regs + EDU_DMA_COMMAND);
	ret = readl_poll_timeout(edu->regs + EDU_DMA_COMMAND, command,
				 !(command & EDU_DMA_RUN), USEC_PER_MSEC, EDU_TIMEOUT_US);
	if (ret)
		edu->stuck = true;
	return ret;
}

/* The device's address of a byte of the buffer, and the rest of its range. */
static int find_range(struct sg_table *sgt, u64 offset, dma_addr_t *addr, u64 *left)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_dma_sg(sgt, sg, i) {
		if (offset < sg_dma_len(sg)) {
			*addr = sg_dma_address(sg) + offset;
			*left = sg_dma_len(sg) - offset;
			return 0;
		}
		offset -= sg_dma_len(sg);
	}
	return -EFAULT;
}

/*
 * The caller holds the reservation lock, so that the buffer does not move while
 * the engine works on it. A page fault on user memory may take that lock
 * too, so this does not touch user memory.
 */
static int dma_locked(struct importer *imp, struct edu *edu, u64 offset, size_t *len, bool write)
{
	dma_addr_t addr;
	u64 left;
	int ret;

	ret = importer_refresh(imp);
	if (ret)
		return ret;
	ret = find_range(imp->sgt, offset, &addr, &left);
	if (ret)
		return ret;
	*len = min_t(u64, *len, left);
	if (write) {
		ret = run_engine(edu, edu->bounce_addr, *len, false);
		return ret ? ret : run_engine(edu, addr, *len, true);
	}
	ret = run_engine(edu, addr, *len, false);
	return ret ? ret : run_engine(edu, edu->bounce_addr, *len, true);
}

static int dma_chunk(struct importer *imp, struct edu *edu, u64 offset, size_t *len, bool write)
{
	int ret;

	ret = dma_resv_lock_interruptible(imp->dmabuf->resv, NULL);
	if (ret)
		return ret;
	ret = dma_locked(imp, edu, offset, len, write);
	dma_resv_unlock(imp->dmabuf->resv);
	return ret;
}

static int transfer(struct importer *imp, struct edu *edu,
		    const struct testimporter_transfer *args)
{
	u64 done = 0;
	size_t len;
	int ret;

	while (done < args->length) {
		void __user *data = u64_to_user_ptr(args->data + done);

		len = min_t(u64, args->length - done, EDU_CHUNK);
		if (args->write && copy_from_user(edu->bounce, data, len))
			return -EFAULT;
		ret = dma_chunk(imp, edu, args->offset + done, &len, args->write);
		if (ret)
			return ret;
		if (!args->write && copy_to_user(data, edu->bounce, len))
			return -EFAULT;
		done += len;
		if (signal_pending(current))
			return -EINTR;
	}
	return 0;
}

/* The device's lock keeps its driver bound, and other callers out. */
int importer_dma(struct importer *imp, const struct testimporter_transfer *args)
{
	int ret;

	ret = importer_check_transfer(imp, args);
	if (ret)
		return ret;
	device_lock(imp->dev);
	if (importer_edu_drives(imp->dev))
		ret = transfer(imp, dev_get_drvdata(imp->dev), args);
	else
		ret = -EOPNOTSUPP;
	device_unlock(imp->dev);
	return ret;
}

static int edu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct edu *edu;
	int ret;

	edu = devm_kzalloc(&pdev->dev, sizeof(*edu), GFP_KERNEL);
	if (!edu)
		return -ENOMEM;
	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	edu->regs = pcim_iomap(pdev, 0, 0);
	if (!edu->regs)
		return -ENOMEM;
	if ((readl(edu->regs + EDU_ID) & EDU_ID_MASK) != EDU_ID_VALUE)
		return -ENODEV;
	pci_set_master(pdev);
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	/* A segment may have any length: one transfer is at most EDU_CHUNK. */
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	edu->bounce = dmam_alloc_coherent(&pdev->dev, EDU_CHUNK, &edu->bounce_addr, GFP_KERNEL);
	if (!edu->bounce)
		return -ENOMEM;
	pci_set_drvdata(pdev, edu);
	return 0;
}

static const struct pci_device_id edu_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{}
};
MODULE_DEVICE_TABLE(pci, edu_ids);

static struct pci_driver edu_driver = {
	.name = "testimporter-edu",
	.id_table = edu_ids,
	.probe = edu_probe,
};

/* Called with the device's lock. */
bool importer_edu_drives(struct device *dev)
{
	return dev->driver == &edu_driver.driver;
}

int importer_edu_init(void)
{
	return pci_register_driver(&edu_driver);
}

void importer_edu_exit(void)
{
	pci_unregister_driver(&edu_driver);
}
