// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/softgpu/BDF/: by these files a test controls the device.
 *
 * buffers	one line a buffer: dma-buf inode, size, place, counts
 * evict	"INODE" or "all": move to system memory; EBUSY if pinned
 * restore	"INODE" or "all": move to the preferred place
 * revoke	"INODE" or "all": as vfio-pci does; unrevoke undoes it
 * fence	"INODE MILLISECONDS [kernel|write|read|bookkeep]": adds a fence
 *		that signals after that time
 * fence_delay_ms  every move adds such a fence (0: none)
 * behaviour	how buffers exported from now on behave
 * pin_rule	system or vram
 * unplug	any text: surprise removal of the PCI device
 * fail/OP	errno with which the operation fails from now on (0: works)
 *
 * INODE is the inode number of a buffer's dma-buf, as in fdinfo.
 */
#include <linux/debugfs.h>
#include <linux/file.h>
#include <linux/pci.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "softgpu.h"

static const char *const op_names[SOFTGPU_OPS] = {
	[SOFTGPU_OP_CREATE] = "create",
	[SOFTGPU_OP_EXPORT] = "export",
	[SOFTGPU_OP_ATTACH] = "attach",
	[SOFTGPU_OP_PIN] = "pin",
	[SOFTGPU_OP_MAP] = "map",
	[SOFTGPU_OP_VMAP] = "vmap",
	[SOFTGPU_OP_MMAP] = "mmap",
	[SOFTGPU_OP_BEGIN_CPU_ACCESS] = "begin_cpu_access",
	[SOFTGPU_OP_END_CPU_ACCESS] = "end_cpu_access",
	[SOFTGPU_OP_MOVE] = "move",
};

static struct dentry *root;

static const char *place_name(struct softgpu_bo *bo)
{
	if (bo->lost)
		return "lost";
	switch (bo->place) {
	case SOFTGPU_SYSTEM:
		return "system";
	case SOFTGPU_VRAM:
		return bo_in_bar(bo) ? "vram" : "vram-hidden";
	default:
		return "nowhere";
	}
}

static void show_bo(struct seq_file *m, struct softgpu_bo *bo)
{
	struct dma_buf_attachment *at;
	unsigned int all = 0, peers = 0;

	dma_resv_lock(bo->base.resv, NULL);
	if (bo->dmabuf)
		list_for_each_entry(at, &bo->dmabuf->attachments, node) {
			all++;
			peers += at->peer2peer;
		}
	seq_printf(m, "inode=%llu size=%zu place=%s", bo->inode, bo->base.size,
		   place_name(bo));
	if (bo->place == SOFTGPU_VRAM)
		seq_printf(m, " offset=%#llx", bo->node->start);
	seq_printf(m, " pins=%u vmaps=%u maps=%u attachments=%u peers=%u handles=%u%s\n",
		   bo->pins, bo->vmaps, bo->maps, all, peers, bo->base.handle_count,
		   bo->revoked ? " revoked" : "");
	dma_resv_unlock(bo->base.resv);
}

/*
 * Returns the buffer after bo with a reference, and drops the one to bo. A
 * buffer without a reference stays on the list until softgpu_gem_free() gets
 * the lock; this skips it.
 */
static struct softgpu_bo *next_bo(struct softgpu_device *gpu, struct softgpu_bo *bo)
{
	struct softgpu_bo *next;

	mutex_lock(&gpu->bos_lock);
	next = bo ? list_next_entry(bo, link) :
		    list_first_entry(&gpu->bos, struct softgpu_bo, link);
	while (!list_entry_is_head(next, &gpu->bos, link) &&
	       !kref_get_unless_zero(&next->base.refcount))
		next = list_next_entry(next, link);
	if (list_entry_is_head(next, &gpu->bos, link))
		next = NULL;
	mutex_unlock(&gpu->bos_lock);
	if (bo)
		drm_gem_object_put(&bo->base);
	return next;
}

static int buffers_show(struct seq_file *m, void *unused)
{
	struct softgpu_device *gpu = m->private;
	struct softgpu_bo *bo = NULL;

	while ((bo = next_bo(gpu, bo)))
		show_bo(m, bo);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(buffers);

/* A copy of the written text without its newline. The caller frees it. */
static char *text_of(const char __user *user, size_t len)
{
	char *text;

	if (!len || len > 256)
		return ERR_PTR(-EINVAL);
	text = memdup_user_nul(user, len);
	if (!IS_ERR(text))
		text[strcspn(text, "\n")] = '\0';
	return text;
}

/*
 * Calls act() for the buffer with this inode number or, if it is 0, for all
 * buffers, exported or not. Goes on after an error, and returns the last one.
 */
static int for_buffers(struct softgpu_device *gpu, u64 inode,
		       int (*act)(struct softgpu_bo *bo))
{
	struct softgpu_bo *bo = NULL;
	int ret = inode ? -ENOENT : 0, err;

	while ((bo = next_bo(gpu, bo))) {
		dma_resv_lock(bo->base.resv, NULL);
		if (!inode || bo->inode == inode) {
			err = bo->lost ? -ENODEV : act(bo);
			if (err || inode)
				ret = err;
		}
		dma_resv_unlock(bo->base.resv);
	}
	return ret;
}

static ssize_t act_on(struct file *file, const char __user *user, size_t len,
		      int (*act)(struct softgpu_bo *bo))
{
	struct softgpu_device *gpu = file->private_data;
	char *text = text_of(user, len);
	u64 inode = 0;
	int ret;

	if (IS_ERR(text))
		return PTR_ERR(text);
	if (strcmp(text, "all")) {
		ret = kstrtou64(text, 10, &inode);
		if (!ret && !inode)
			ret = -EINVAL;
	} else {
		ret = 0;
	}
	kfree(text);
	if (!ret)
		ret = for_buffers(gpu, inode, act);
	return ret ? ret : len;
}

#define ACTION(name, act)							\
static ssize_t name##_write(struct file *file, const char __user *user,	\
			    size_t len, loff_t *pos)				\
{										\
	return act_on(file, user, len, act);					\
}										\
static const struct file_operations name##_fops = {				\
	.owner = THIS_MODULE,							\
	.open = simple_open,							\
	.write = name##_write,							\
}

static int act_restore(struct softgpu_bo *bo)
{
	return softgpu_bo_validate(bo, bo->preferred, bo->visible);
}

static int act_revoke(struct softgpu_bo *bo)
{
	return softgpu_bo_revoke(bo, true);
}

static int act_unrevoke(struct softgpu_bo *bo)
{
	return softgpu_bo_revoke(bo, false);
}

ACTION(evict, softgpu_bo_evict);
ACTION(restore, act_restore);
ACTION(revoke, act_revoke);
ACTION(unrevoke, act_unrevoke);

static int usage_of(const char *name, enum dma_resv_usage *usage)
{
	static const char *const names[] = {
		[DMA_RESV_USAGE_KERNEL] = "kernel",
		[DMA_RESV_USAGE_WRITE] = "write",
		[DMA_RESV_USAGE_READ] = "read",
		[DMA_RESV_USAGE_BOOKKEEP] = "bookkeep",
	};
	int i = match_string(names, ARRAY_SIZE(names), name);

	if (i >= 0)
		*usage = i;
	return i < 0 ? -EINVAL : 0;
}

static int add_fence(struct softgpu_device *gpu, u64 inode, unsigned int ms,
		     enum dma_resv_usage usage)
{
	struct softgpu_bo *bo = NULL;
	int ret = -ENOENT;

	while ((bo = next_bo(gpu, bo))) {
		dma_resv_lock(bo->base.resv, NULL);
		if (bo->inode == inode)
			ret = softgpu_fence_add(bo, ms, usage);
		dma_resv_unlock(bo->base.resv);
	}
	return ret;
}

static ssize_t fence_write(struct file *file, const char __user *user, size_t len, loff_t *pos)
{
	enum dma_resv_usage usage = DMA_RESV_USAGE_WRITE;
	char *text = text_of(user, len);
	char name[16] = "write";
	unsigned int ms;
	u64 inode;
	int ret;

	if (IS_ERR(text))
		return PTR_ERR(text);
	ret = sscanf(text, "%llu %u %15s", &inode, &ms, name);
	kfree(text);
	/* A fence keeps the module loaded: for an hour at most. */
	if (ret < 2 || !inode || ms > 3600 * MSEC_PER_SEC)
		return -EINVAL;
	ret = usage_of(name, &usage);
	if (!ret)
		ret = add_fence(file->private_data, inode, ms, usage);
	return ret ? ret : len;
}

static const struct file_operations fence_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = fence_write,
};

static int behaviour_show(struct seq_file *m, void *unused)
{
	struct softgpu_device *gpu = m->private;

	seq_printf(m, "%s\n", READ_ONCE(gpu->behaviour)->name);
	return 0;
}

static int behaviour_open(struct inode *inode, struct file *file)
{
	return single_open(file, behaviour_show, inode->i_private);
}

static ssize_t behaviour_write(struct file *file, const char __user *user, size_t len,
			       loff_t *pos)
{
	struct softgpu_device *gpu = ((struct seq_file *)file->private_data)->private;
	const struct softgpu_behaviour *behaviour;
	char *text = text_of(user, len);

	if (IS_ERR(text))
		return PTR_ERR(text);
	behaviour = softgpu_behaviour_find(text);
	kfree(text);
	if (!behaviour)
		return -EINVAL;
	WRITE_ONCE(gpu->behaviour, behaviour);
	return len;
}

static const struct file_operations behaviour_fops = {
	.owner = THIS_MODULE,
	.open = behaviour_open,
	.read = seq_read,
	.write = behaviour_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static ssize_t pin_rule_write(struct file *file, const char __user *user, size_t len,
			      loff_t *pos)
{
	struct softgpu_device *gpu = file->private_data;
	char *text = text_of(user, len);
	int ret = len;

	if (IS_ERR(text))
		return PTR_ERR(text);
	if (!strcmp(text, "system"))
		WRITE_ONCE(gpu->pin_rule, SOFTGPU_PIN_SYSTEM);
	else if (!strcmp(text, "vram"))
		WRITE_ONCE(gpu->pin_rule, SOFTGPU_PIN_VRAM);
	else
		ret = -EINVAL;
	kfree(text);
	return ret;
}

static const struct file_operations pin_rule_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = pin_rule_write,
};

/*
 * A work item removes the device: the removal waits for all writes to this
 * file, so a write cannot wait for the removal.
 */
static ssize_t unplug_write(struct file *file, const char __user *user, size_t len, loff_t *pos)
{
	struct softgpu_device *gpu = file->private_data;

	drm_dev_get(&gpu->drm);
	if (!queue_work(softgpu_wq, &gpu->unplug_work))
		drm_dev_put(&gpu->drm);
	return len;
}

static const struct file_operations unplug_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = unplug_write,
};

/* Ignores errors: only tests use debugfs, and the device works without. */
void softgpu_debugfs_add(struct softgpu_device *gpu)
{
	struct dentry *dir, *fail;
	unsigned int i;

	dir = debugfs_create_dir(pci_name(gpu->pdev), root);
	gpu->debugfs = dir;
	debugfs_create_file("buffers", 0400, dir, gpu, &buffers_fops);
	debugfs_create_file("evict", 0200, dir, gpu, &evict_fops);
	debugfs_create_file("restore", 0200, dir, gpu, &restore_fops);
	debugfs_create_file("revoke", 0200, dir, gpu, &revoke_fops);
	debugfs_create_file("unrevoke", 0200, dir, gpu, &unrevoke_fops);
	debugfs_create_file("fence", 0200, dir, gpu, &fence_fops);
	debugfs_create_file("behaviour", 0600, dir, gpu, &behaviour_fops);
	debugfs_create_file("pin_rule", 0200, dir, gpu, &pin_rule_fops);
	debugfs_create_file("unplug", 0200, dir, gpu, &unplug_fops);
	debugfs_create_u32("fence_delay_ms", 0600, dir, &gpu->fence_delay_ms);
	fail = debugfs_create_dir("fail", dir);
	for (i = 0; i < SOFTGPU_OPS; i++)
		debugfs_create_u32(op_names[i], 0600, fail, &gpu->fail[i]);
}

/* Waits until no task reads or writes one of the files. */
void softgpu_debugfs_remove(struct softgpu_device *gpu)
{
	debugfs_remove_recursive(gpu->debugfs);
	gpu->debugfs = NULL;
}

void softgpu_debugfs_module_init(void)
{
	root = debugfs_create_dir("softgpu", NULL);
}

void softgpu_debugfs_module_fini(void)
{
	debugfs_remove_recursive(root);
}
