// SPDX-License-Identifier: GPL-2.0
/*
 * A dma-buf exporter for tests of importers. It fails in the call that user
 * space names, which no real exporter does on request, and maps kinds of memory
 * that no other exporter of the test bed has. It counts the pins, mappings and
 * CPU accesses of importers, and warns about a buffer that is released while
 * one of them is left.
 */

#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/err.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "buffer.h"

#define MAX_PAGES 1024

static int test_attach(struct dma_buf *dmabuf,
		       struct dma_buf_attachment *attach)
{
	struct test_buffer *b = dmabuf->priv;
	struct dma_buf_attachment *a;

	if (b->mode == TESTEXPORTER_ATTACH)
		return -EPERM;
	if (!b->inner)
		return 0;
	a = dma_buf_attach(b->inner, attach->dev);
	if (IS_ERR(a))
		return PTR_ERR(a);
	attach->priv = a;
	return 0;
}

static void test_detach(struct dma_buf *dmabuf,
			struct dma_buf_attachment *attach)
{
	struct test_buffer *b = dmabuf->priv;

	if (b->inner)
		dma_buf_detach(b->inner, attach->priv);
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

	if (b->mode == TESTEXPORTER_MAP)
		return ERR_PTR(-ENXIO);
	sgt = test_table_map(b, attach->dev, dir);
	if (!IS_ERR(sgt))
		atomic_inc(&b->maps);
	return sgt;
}

static void test_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
		       enum dma_data_direction dir)
{
	struct test_buffer *b = attach->dmabuf->priv;

	test_table_unmap(b, attach->dev, sgt, dir);
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

	/* RAM only: user space maps a BAR by its file in sysfs. */
	return vm_map_pages(vma, b->pages, b->nram);
}

static void free_buffer(struct test_buffer *b)
{
	unsigned int i;

	for (i = 0; i < b->nram && b->pages[i]; i++)
		__free_page(b->pages[i]);
	test_bar_put(b);
	if (b->inner)
		dma_buf_put(b->inner);
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
	.detach = test_detach, \
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

static unsigned int ram_pages(enum testexporter_mode mode, unsigned int npages)
{
	switch (mode) {
	case TESTEXPORTER_BAR:
	case TESTEXPORTER_P2PMEM:
		return 0;
	case TESTEXPORTER_HALVES:
	case TESTEXPORTER_HALVES_DMA:
	case TESTEXPORTER_HALVES_P2PMEM:
		return npages / 2;
	default:
		return npages;
	}
}

static struct test_buffer *alloc_buffer(const struct testexporter_create *c)
{
	struct test_buffer *b;
	unsigned int i;
	int err = -ENOMEM;

	b = kzalloc(sizeof(*b), GFP_KERNEL);
	if (!b)
		return ERR_PTR(-ENOMEM);
	b->mode = c->mode;
	b->npages = c->pages;
	b->nram = ram_pages(b->mode, b->npages);
	b->pages = kvcalloc(b->npages, sizeof(*b->pages), GFP_KERNEL);
	if (!b->pages) {
		kfree(b);
		return ERR_PTR(-ENOMEM);
	}
	for (i = 0; i < b->nram; i++) {
		b->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!b->pages[i])
			goto err;
	}
	if (test_in_bar(b->mode)) {
		err = test_bar_get(b, c);
		if (err)
			goto err;
	}
	return b;

err:
	free_buffer(b);
	return ERR_PTR(err);
}

static struct dma_buf *export_buffer(const struct testexporter_create *c)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;
	struct test_buffer *b;

	b = alloc_buffer(c);
	if (IS_ERR(b))
		return ERR_CAST(b);

	info.ops = &test_ops;
	if (b->mode == TESTEXPORTER_NO_VMAP || test_in_bar(b->mode))
		info.ops = &test_ops_no_vmap;
	info.size = (size_t)b->npages << PAGE_SHIFT;
	info.flags = O_RDWR;
	info.priv = b;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf))
		free_buffer(b);
	return dmabuf;
}

static long create(const struct testexporter_create *c)
{
	static const struct testexporter_create plain = { .pages = 1 };
	struct dma_buf *dmabuf, *inner;
	int fd;

	if (c->mode >= TESTEXPORTER_MODES || !c->pages ||
	    c->pages > MAX_PAGES || c->reserved)
		return -EINVAL;
	dmabuf = export_buffer(c);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	if (c->mode == TESTEXPORTER_NESTED) {
		inner = export_buffer(&plain);
		if (IS_ERR(inner)) {
			dma_buf_put(dmabuf);
			return PTR_ERR(inner);
		}
		((struct test_buffer *)dmabuf->priv)->inner = inner;
	}

	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(dmabuf);
	return fd;
}

static long move(int fd)
{
	struct test_buffer *b;
	struct dma_buf *dmabuf;
	long err = -EINVAL;

	dmabuf = dma_buf_get(fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	if (dmabuf->ops != &test_ops && dmabuf->ops != &test_ops_no_vmap)
		goto out;
	b = dmabuf->priv;
	dma_resv_lock(dmabuf->resv, NULL);
	if (atomic_read(&b->pins)) {
		err = -EBUSY;
	} else {
#ifdef HAVE_INVALIDATE_MAPPINGS
		dma_buf_invalidate_mappings(dmabuf);
#else
		dma_buf_move_notify(dmabuf);
#endif
		err = 0;
	}
	dma_resv_unlock(dmabuf->resv);
out:
	dma_buf_put(dmabuf);
	return err;
}

static long test_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct testexporter_create c;

	if (cmd == TESTEXPORTER_MOVE)
		return move((int)arg);
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

static int __init test_init(void)
{
	return misc_register(&test_device);
}
module_init(test_init);

static void __exit test_exit(void)
{
	misc_deregister(&test_device);
	test_bar_exit();
}
module_exit(test_exit);

MODULE_DESCRIPTION("dma-buf exporter with faults and scatter lists on request");
MODULE_LICENSE("GPL");
#ifdef STRING_NAMESPACE
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
