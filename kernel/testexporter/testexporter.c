// SPDX-License-Identifier: GPL-2.0
/*
 * A dma-buf exporter that fails where it is told to, for the error paths of
 * importers that no real exporter takes on request. It counts what importers
 * hold and warns about a buffer that goes before all of it was given back.
 */

#include <linux/atomic.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "testexporter.h"

#define MAX_PAGES 1024

struct test_buffer {
	enum testexporter_mode mode;
	unsigned int npages;
	struct page **pages;

	/* held by importers */
	atomic_t pins;
	atomic_t maps;
	atomic_t vmaps;
	atomic_t cpu;
};

static int test_attach(struct dma_buf *dmabuf,
		       struct dma_buf_attachment *attach)
{
	struct test_buffer *b = dmabuf->priv;

	return b->mode == TESTEXPORTER_ATTACH ? -EPERM : 0;
}

static int test_pin(struct dma_buf_attachment *attach)
{
	struct test_buffer *b = attach->dmabuf->priv;

	if (b->mode == TESTEXPORTER_PIN)
		return -EBUSY;
	atomic_inc(&b->pins);
	return 0;
}

static void test_unpin(struct dma_buf_attachment *attach)
{
	struct test_buffer *b = attach->dmabuf->priv;

	atomic_dec(&b->pins);
}

static struct sg_table *test_map(struct dma_buf_attachment *attach,
				 enum dma_data_direction dir)
{
	struct test_buffer *b = attach->dmabuf->priv;
	struct sg_table *sgt;
	int err;

	if (b->mode == TESTEXPORTER_MAP)
		return ERR_PTR(-ENXIO);

	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	err = sg_alloc_table_from_pages(sgt, b->pages, b->npages, 0,
					(size_t)b->npages << PAGE_SHIFT,
					GFP_KERNEL);
	if (err)
		goto err_free;
	err = dma_map_sgtable(attach->dev, sgt, dir, 0);
	if (err)
		goto err_table;

	atomic_inc(&b->maps);
	return sgt;

err_table:
	sg_free_table(sgt);
err_free:
	kfree(sgt);
	return ERR_PTR(err);
}

static void test_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
		       enum dma_data_direction dir)
{
	struct test_buffer *b = attach->dmabuf->priv;

	dma_unmap_sgtable(attach->dev, sgt, dir, 0);
	sg_free_table(sgt);
	kfree(sgt);
	atomic_dec(&b->maps);
}

static int test_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct test_buffer *b = dmabuf->priv;
	void *vaddr;

	vaddr = vmap(b->pages, b->npages, VM_MAP, PAGE_KERNEL);
	if (!vaddr)
		return -ENOMEM;

	atomic_inc(&b->vmaps);
	if (b->mode == TESTEXPORTER_IOMEM)
		iosys_map_set_vaddr_iomem(map, (void __force __iomem *)vaddr);
	else
		iosys_map_set_vaddr(map, vaddr);
	return 0;
}

static void test_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct test_buffer *b = dmabuf->priv;

	vunmap(map->vaddr);
	atomic_dec(&b->vmaps);
}

static int test_begin_cpu(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct test_buffer *b = dmabuf->priv;

	if (b->mode == TESTEXPORTER_BEGIN_CPU)
		return -EIO;
	atomic_inc(&b->cpu);
	return 0;
}

static int test_end_cpu(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct test_buffer *b = dmabuf->priv;

	atomic_dec(&b->cpu);
	return 0;
}

static int test_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct test_buffer *b = dmabuf->priv;

	return vm_map_pages(vma, b->pages, b->npages);
}

static void free_buffer(struct test_buffer *b)
{
	unsigned int i;

	for (i = 0; i < b->npages && b->pages[i]; i++)
		__free_page(b->pages[i]);
	kvfree(b->pages);
	kfree(b);
}

static void test_release(struct dma_buf *dmabuf)
{
	struct test_buffer *b = dmabuf->priv;

	WARN(atomic_read(&b->pins) || atomic_read(&b->maps) ||
	     atomic_read(&b->vmaps) || atomic_read(&b->cpu),
	     "mode %d released with %d pins, %d maps, %d vmaps, %d CPU accesses\n",
	     b->mode, atomic_read(&b->pins), atomic_read(&b->maps),
	     atomic_read(&b->vmaps), atomic_read(&b->cpu));
	free_buffer(b);
}

#define TEST_OPS \
	.attach = test_attach, \
	.pin = test_pin, \
	.unpin = test_unpin, \
	.map_dma_buf = test_map, \
	.unmap_dma_buf = test_unmap, \
	.begin_cpu_access = test_begin_cpu, \
	.end_cpu_access = test_end_cpu, \
	.mmap = test_mmap, \
	.release = test_release

static const struct dma_buf_ops test_ops = {
	TEST_OPS,
	.vmap = test_vmap,
	.vunmap = test_vunmap,
};

static const struct dma_buf_ops test_ops_no_vmap = {
	TEST_OPS,
};

static long create(const struct testexporter_create *c)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;
	struct test_buffer *b;
	unsigned int i;
	int fd;

	if (c->mode >= TESTEXPORTER_MODES || !c->pages || c->pages > MAX_PAGES)
		return -EINVAL;

	b = kzalloc(sizeof(*b), GFP_KERNEL);
	if (!b)
		return -ENOMEM;
	b->mode = c->mode;
	b->npages = c->pages;
	b->pages = kvcalloc(b->npages, sizeof(*b->pages), GFP_KERNEL);
	if (!b->pages) {
		kfree(b);
		return -ENOMEM;
	}
	for (i = 0; i < b->npages; i++) {
		b->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!b->pages[i]) {
			free_buffer(b);
			return -ENOMEM;
		}
	}

	info.ops = b->mode == TESTEXPORTER_NO_VMAP ? &test_ops_no_vmap :
						     &test_ops;
	info.size = (size_t)b->npages << PAGE_SHIFT;
	info.flags = O_RDWR;
	info.priv = b;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		free_buffer(b);
		return PTR_ERR(dmabuf);
	}

	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(dmabuf);
	return fd;
}

static long test_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct testexporter_create c;

	if (cmd != TESTEXPORTER_CREATE)
		return -ENOTTY;
	if (copy_from_user(&c, (void __user *)arg, sizeof(c)))
		return -EFAULT;
	return create(&c);
}

static const struct file_operations test_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = test_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice test_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "testexporter",
	.fops = &test_fops,
};
module_misc_device(test_device);

MODULE_DESCRIPTION("dma-buf exporter with faults on request");
MODULE_LICENSE("GPL");
#ifdef STRING_NAMESPACE
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
