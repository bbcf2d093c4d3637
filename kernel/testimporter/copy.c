// SPDX-License-Identifier: GPL-2.0
/* Transfers by the CPU, through the exporter's vmap. */
#include <linux/iosys-map.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "importer.h"

int importer_check_transfer(struct importer *imp, const struct testimporter_transfer *args)
{
	u64 size = imp->dmabuf->size;

	if (args->write > 1 || !args->length || args->offset > size ||
	    args->length > size - args->offset)
		return -EINVAL;
	return 0;
}

static int copy_chunk(struct iosys_map *map, u64 offset, void *bounce, size_t len,
		      const struct testimporter_transfer *args, u64 done)
{
	void __user *data = u64_to_user_ptr(args->data + done);

	if (args->write) {
		if (copy_from_user(bounce, data, len))
			return -EFAULT;
		iosys_map_memcpy_to(map, offset, bounce, len);
		return 0;
	}
	iosys_map_memcpy_from(bounce, map, offset, len);
	return copy_to_user(data, bounce, len) ? -EFAULT : 0;
}

/*
 * Called without the reservation lock, which a page fault takes: the user's
 * memory may be a mapping of the buffer.
 */
int importer_copy(struct importer *imp, const struct testimporter_transfer *args)
{
	struct iosys_map map;
	u64 done = 0;
	void *bounce;
	int ret;

	ret = importer_check_transfer(imp, args);
	if (ret)
		return ret;
	bounce = kmalloc(PAGE_SIZE, GFP_KERNEL);
	if (!bounce)
		return -ENOMEM;
	ret = dma_buf_vmap_unlocked(imp->dmabuf, &map);
	if (ret)
		goto free;
	while (!ret && done < args->length) {
		size_t len = min_t(u64, args->length - done, PAGE_SIZE);

		ret = copy_chunk(&map, args->offset + done, bounce, len, args, done);
		done += len;
		cond_resched();
	}
	dma_buf_vunmap_unlocked(imp->dmabuf, &map);
free:
	kfree(bounce);
	return ret;
}
