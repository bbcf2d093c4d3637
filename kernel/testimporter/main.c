// SPDX-License-Identifier: GPL-2.0
/* /dev/testimporter: the attachments of each open file, and its ioctls. */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/xarray.h>

#include "importer.h"

/* The lock serializes ioctls: none detaches what another one uses. */
struct table {
	struct mutex lock;	/* importers, and each of them */
	struct xarray importers;
};

static int importer_open(struct inode *inode, struct file *file)
{
	struct table *table = kzalloc_obj(*table);

	if (!table)
		return -ENOMEM;
	mutex_init(&table->lock);
	xa_init_flags(&table->importers, XA_FLAGS_ALLOC1);
	file->private_data = table;
	return 0;
}

static int importer_release(struct inode *inode, struct file *file)
{
	struct table *table = file->private_data;
	struct importer *imp;
	unsigned long id;

	xa_for_each(&table->importers, id, imp)
		importer_detach(imp);
	xa_destroy(&table->importers);
	mutex_destroy(&table->lock);
	kfree(table);
	return 0;
}

static int do_attach(struct table *table, void __user *user)
{
	struct testimporter_attach args;
	struct importer *imp;
	int ret;

	if (copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;
	imp = importer_attach(&args);
	if (IS_ERR(imp))
		return PTR_ERR(imp);
	ret = xa_alloc(&table->importers, &args.id, imp, xa_limit_31b, GFP_KERNEL);
	if (ret)
		goto detach;
	args.peer2peer = imp->attach->peer2peer;
	if (!copy_to_user(user, &args, sizeof(args)))
		return 0;
	ret = -EFAULT;
	xa_erase(&table->importers, args.id);
detach:
	importer_detach(imp);
	return ret;
}

static int do_detach(struct table *table, u32 __user *user)
{
	struct importer *imp;
	u32 id;

	if (get_user(id, user))
		return -EFAULT;
	imp = xa_erase(&table->importers, id);
	if (!imp)
		return -ENOENT;
	importer_detach(imp);
	return 0;
}

/*
 * The page of an entry, which tests compare. Real importers must not use it:
 * with CONFIG_DMABUF_DEBUG, 6.12 inverts bits of the pointer, and 7.2 has none.
 */
static struct page *segment_page(struct scatterlist *sg)
{
	unsigned long page = (unsigned long)sg_page(sg);

	if (IS_ENABLED(CONFIG_DMABUF_DEBUG) && page)
		page ^= ~0xffUL;
	return (struct page *)page;
}

static void fill_segment(struct testimporter_segment *out, struct scatterlist *sg, bool page)
{
	memset(out, 0, sizeof(*out));
	out->addr = sg_dma_address(sg);
	out->length = sg_dma_len(sg);
	/* Page and DMA range match only if the mapping merged no entries. */
	if (page && segment_page(sg)) {
		out->phys = page_to_phys(segment_page(sg)) + sg->offset;
		out->flags |= TESTIMPORTER_SEGMENT_PAGE;
	}
	if (sg_dma_is_bus_address(sg))
		out->flags |= TESTIMPORTER_SEGMENT_BUS_ADDRESS;
	if (sg_dma_is_swiotlb(sg))
		out->flags |= TESTIMPORTER_SEGMENT_SWIOTLB;
}

/* The first max segments of the mapping. */
static struct testimporter_segment *segments_of(struct sg_table *sgt, u32 max)
{
	struct testimporter_segment *segments;
	struct scatterlist *sg;
	int i;

	max = min(max, sgt->nents);
	segments = kvmalloc_array(max ? max : 1, sizeof(*segments), GFP_KERNEL);
	if (!segments)
		return NULL;
	for_each_sg(sgt->sgl, sg, max, i)
		fill_segment(&segments[i], sg, sgt->orig_nents == sgt->nents);
	return segments;
}

static int do_map(struct table *table, struct testimporter_map __user *user)
{
	struct testimporter_segment *segments = NULL;
	struct testimporter_map args;
	struct importer *imp;
	u32 stored = 0;
	int ret;

	if (copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;
	if (args.direction > TESTIMPORTER_FROM_DEVICE)
		return -EINVAL;
	imp = xa_load(&table->importers, args.id);
	if (!imp)
		return -ENOENT;
	ret = dma_resv_lock_interruptible(imp->dmabuf->resv, NULL);
	if (ret)
		return ret;
	ret = importer_map(imp, args.direction);
	if (!ret) {
		args.count = imp->sgt->nents;
		stored = min(args.max, args.count);
		segments = segments_of(imp->sgt, args.max);
		if (!segments)
			ret = -ENOMEM;
	}
	dma_resv_unlock(imp->dmabuf->resv);
	/* Without the lock, as in importer_copy(). */
	if (!ret && stored && copy_to_user(u64_to_user_ptr(args.segments), segments,
					   stored * sizeof(*segments)))
		ret = -EFAULT;
	if (!ret && put_user(args.count, &user->count))
		ret = -EFAULT;
	kvfree(segments);
	return ret;
}

static int do_unmap(struct table *table, u32 __user *user)
{
	struct importer *imp;
	u32 id;
	int ret;

	if (get_user(id, user))
		return -EFAULT;
	imp = xa_load(&table->importers, id);
	if (!imp)
		return -ENOENT;
	dma_resv_lock(imp->dmabuf->resv, NULL);
	ret = importer_unmap(imp);
	dma_resv_unlock(imp->dmabuf->resv);
	return ret;
}

static int do_state(struct table *table, void __user *user)
{
	struct testimporter_state args;
	struct importer *imp;

	if (copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;
	if (args.reserved)
		return -EINVAL;
	imp = xa_load(&table->importers, args.id);
	if (!imp)
		return -ENOENT;
	dma_resv_lock(imp->dmabuf->resv, NULL);
	args.peer2peer = imp->attach->peer2peer;
	args.mapped = !!imp->sgt;
	args.pinned = imp->pinned;
	args.revoked = imp->revoked;
	args.invalidations = imp->invalidations;
	args.maps = imp->maps;
	args.size = imp->dmabuf->size;
	dma_resv_unlock(imp->dmabuf->resv);
	return copy_to_user(user, &args, sizeof(args)) ? -EFAULT : 0;
}

static int do_transfer(struct table *table, void __user *user,
		       int (*transfer)(struct importer *imp,
				       const struct testimporter_transfer *args))
{
	struct testimporter_transfer args;
	struct importer *imp;

	if (copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;
	imp = xa_load(&table->importers, args.id);
	return imp ? transfer(imp, &args) : -ENOENT;
}

static int do_distance(void __user *user)
{
	struct testimporter_distance args;
	int ret;

	if (copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;
	ret = importer_distance(&args);
	if (!ret && copy_to_user(user, &args, sizeof(args)))
		ret = -EFAULT;
	return ret;
}

static int dispatch(struct table *table, unsigned int cmd, void __user *user)
{
	switch (cmd) {
	case TESTIMPORTER_IOC_ATTACH:
		return do_attach(table, user);
	case TESTIMPORTER_IOC_DETACH:
		return do_detach(table, user);
	case TESTIMPORTER_IOC_MAP:
		return do_map(table, user);
	case TESTIMPORTER_IOC_UNMAP:
		return do_unmap(table, user);
	case TESTIMPORTER_IOC_STATE:
		return do_state(table, user);
	case TESTIMPORTER_IOC_DMA:
		return do_transfer(table, user, importer_dma);
	case TESTIMPORTER_IOC_COPY:
		return do_transfer(table, user, importer_copy);
	case TESTIMPORTER_IOC_DISTANCE:
		return do_distance(user);
	default:
		return -ENOTTY;
	}
}

static long importer_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct table *table = file->private_data;
	int ret;

	ret = mutex_lock_interruptible(&table->lock);
	if (ret)
		return ret;
	ret = dispatch(table, cmd, (void __user *)arg);
	mutex_unlock(&table->lock);
	return ret;
}

static const struct file_operations importer_fops = {
	.owner = THIS_MODULE,
	.open = importer_open,
	.release = importer_release,
	.unlocked_ioctl = importer_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice importer_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "testimporter",
	.fops = &importer_fops,
	.mode = 0600,
};

static int __init testimporter_init(void)
{
	int ret;

	ret = importer_device_init();
	if (ret)
		return ret;
	ret = importer_edu_init();
	if (ret)
		goto device;
	ret = misc_register(&importer_misc);
	if (!ret)
		return 0;
	importer_edu_exit();
device:
	importer_device_exit();
	return ret;
}

static void __exit testimporter_exit(void)
{
	misc_deregister(&importer_misc);
	importer_edu_exit();
	importer_device_exit();
}

module_init(testimporter_init);
module_exit(testimporter_exit);

MODULE_DESCRIPTION("dma-buf importer of every kind, for tests");
MODULE_LICENSE("GPL");
