/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A software GPU: the BAR of an emulated PCI device serves as its VRAM.
 *
 * Locks, outermost first:
 *   bo->base.resv      the buffer's place and memory, pins, vmaps, maps, export
 *   gpu->bos_lock      the list of all buffers
 *   gpu->vram_lock     the VRAM allocator and its eviction order
 *   gpu->dirty_lock    the maps of VRAM pages to wipe (spinlock)
 */
#ifndef SOFTGPU_H
#define SOFTGPU_H

#include <linux/bitmap.h>
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/iosys-map.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/workqueue.h>
#include <drm/drm_device.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_mm.h>

#include "compat.h"

struct softgpu_behaviour;
struct softgpu_bo;

/* Operations that debugfs can make fail. */
enum softgpu_op {
	SOFTGPU_OP_CREATE,
	SOFTGPU_OP_EXPORT,
	SOFTGPU_OP_ATTACH,
	SOFTGPU_OP_PIN,
	SOFTGPU_OP_MAP,
	SOFTGPU_OP_VMAP,
	SOFTGPU_OP_MMAP,
	SOFTGPU_OP_BEGIN_CPU_ACCESS,
	SOFTGPU_OP_END_CPU_ACCESS,
	SOFTGPU_OP_MOVE,
	SOFTGPU_OPS
};

enum softgpu_pin_rule {
	SOFTGPU_PIN_SYSTEM,	/* amdgpu and xe up to 6.12: always system memory */
	SOFTGPU_PIN_VRAM,	/* later: VRAM when every importer is peer to peer */
};

/* Places, also as a mask. */
enum softgpu_place {
	SOFTGPU_NOWHERE = 0,
	SOFTGPU_SYSTEM = BIT(0),
	SOFTGPU_VRAM = BIT(1),
};

/*
 * The driver that user space sees: the name that DRM_IOCTL_VERSION returns, and
 * that driver's ioctls.
 */
struct softgpu_personality {
	const char *name;
	const char *behaviour;		/* how its exporter behaves by default */
	const struct drm_driver *driver;
};

struct softgpu_device {
	struct drm_device drm;
	struct pci_dev *pdev;
	struct list_head link;		/* in the driver's list of devices */
	const struct softgpu_personality *personality;
	const struct softgpu_behaviour *behaviour;
	enum softgpu_pin_rule pin_rule;

	resource_size_t bar_phys;
	void __iomem *bar;		/* mapped until the last buffer is gone */
	int bar_nr;
	u64 visible_size;		/* the BAR */
	u64 vram_size;			/* may be larger */
	u64 vram_page;			/* granularity of VRAM */

	struct mutex vram_lock;		/* vram_mm, lru, vram_used, vram_nodes */
	struct drm_mm vram_mm;
	struct list_head lru;
	u64 vram_used;
	u64 visible_used;
	unsigned int vram_nodes;

	spinlock_t dirty_lock;		/* dirty, stale */
	unsigned long *dirty;		/* pages of the BAR that buffers used */
	unsigned long *stale;		/* pages with earlier contents */

	struct mutex bos_lock;		/* bos */
	struct list_head bos;
	atomic64_t system_used;

	struct dentry *debugfs;
	u32 fail[SOFTGPU_OPS];		/* errno, 0: none */
	u32 fence_delay_ms;
	struct work_struct unplug_work;
};

struct softgpu_bo {
	struct drm_gem_object base;
	struct list_head link;		/* gpu->bos */
	struct list_head lru;		/* gpu->lru while in VRAM */

	u32 allowed;			/* mask of enum softgpu_place */
	u32 preferred;
	u64 align;			/* in VRAM, bytes */
	bool no_cpu;			/* never mapped by the CPU */
	bool no_export;			/* never a dma-buf */
	bool visible;			/* VRAM must be inside the BAR */
	bool lost;			/* the device is gone */

	/* Under base.resv. */
	enum softgpu_place place;
	struct drm_mm_node *node;	/* in VRAM */
	struct page **pages;		/* the contents, unless in the BAR */
	unsigned int pins;
	unsigned int vmaps;
	void *vaddr;			/* of a vmap of pages */
	unsigned int maps;		/* importers' live mappings */
	bool revoked;
	struct dma_buf *dmabuf;		/* until its release */
	/*
	 * The number of dmabuf's inode, 0: none. The kernel frees the inode
	 * before it calls the release.
	 */
	u64 inode;
	const struct softgpu_behaviour *behaviour;
	struct p2pdma_provider *provider;
};

/*
 * How the exporter behaves towards importers. claim() runs before the dma-buf
 * is made and disclaim() when it is released, both with the reservation lock.
 */
struct softgpu_behaviour {
	const char *name;
	const char *exp_name;
	const struct dma_buf_ops *ops;
	int (*claim)(struct softgpu_bo *bo);
	void (*disclaim)(struct softgpu_bo *bo);
	bool revokes;
};

static inline struct softgpu_device *to_softgpu(struct drm_device *drm)
{
	return container_of(drm, struct softgpu_device, drm);
}

static inline struct softgpu_bo *to_bo(struct drm_gem_object *obj)
{
	return container_of(obj, struct softgpu_bo, base);
}

static inline struct softgpu_device *bo_gpu(struct softgpu_bo *bo)
{
	return to_softgpu(bo->base.dev);
}

static inline unsigned long bo_npages(struct softgpu_bo *bo)
{
	return bo->base.size >> PAGE_SHIFT;
}

/* Whether the buffer is in the part of VRAM that CPUs and peers reach. */
static inline bool bo_in_bar(struct softgpu_bo *bo)
{
	return bo->place == SOFTGPU_VRAM &&
	       bo->node->start + bo->node->size <= bo_gpu(bo)->visible_size;
}

/* Returns 0, or the error that a test has set in debugfs. */
static inline int softgpu_fail(struct softgpu_device *gpu, enum softgpu_op op)
{
	return -(int)READ_ONCE(gpu->fail[op]);
}

/* drv.c */
extern struct workqueue_struct *softgpu_wq;
extern bool softgpu_wipe;
extern bool softgpu_topology_gate;
void softgpu_get_module(void);
void softgpu_put_module(void);

/* gem.c */
struct softgpu_bo_params {
	u64 size;
	u64 align;
	u32 allowed;
	u32 preferred;
	bool visible;
	bool no_cpu;
	bool no_export;
	bool defer;		/* no memory before the first use */
};

struct softgpu_bo *softgpu_bo_create(struct softgpu_device *gpu,
				     const struct softgpu_bo_params *params);
int softgpu_bo_publish(struct softgpu_bo *bo, struct drm_file *file, u32 *handle);

/* vram.c */
int softgpu_vram_init(struct softgpu_device *gpu);
void softgpu_vram_fini(struct softgpu_device *gpu);
struct drm_mm_node *softgpu_vram_alloc(struct softgpu_bo *bo, bool visible);
void softgpu_vram_free(struct softgpu_device *gpu, struct drm_mm_node *node);
void softgpu_vram_show(struct softgpu_device *gpu, u64 start, u64 size);
void softgpu_vram_filled(struct softgpu_device *gpu, u64 start, u64 size);
void softgpu_vram_touch(struct softgpu_bo *bo);

/* pages.c */
struct page **softgpu_pages_alloc(struct softgpu_device *gpu, unsigned long n, bool zero);
void softgpu_pages_free(struct softgpu_device *gpu, struct page **pages, unsigned long n);

/* place.c */
int softgpu_bo_validate(struct softgpu_bo *bo, u32 places, bool visible);
int softgpu_bo_validate_cpu(struct softgpu_bo *bo);
int softgpu_bo_evict(struct softgpu_bo *bo);
void softgpu_bo_release_memory(struct softgpu_bo *bo);
int softgpu_bo_pin(struct softgpu_bo *bo, u32 places);
void softgpu_bo_unpin(struct softgpu_bo *bo);

/* mmap.c */
extern const struct vm_operations_struct softgpu_vm_ops;
int softgpu_bo_mmap(struct drm_gem_object *obj, struct vm_area_struct *vma);
int softgpu_bo_vmap(struct drm_gem_object *obj, struct iosys_map *map);
void softgpu_bo_vunmap(struct drm_gem_object *obj, struct iosys_map *map);

/* fence.c */
int softgpu_fence_add(struct softgpu_bo *bo, unsigned int ms, enum dma_resv_usage usage);

/* fdinfo.c */
void softgpu_show_fdinfo(struct drm_printer *p, struct drm_file *file);

/* export.c */
const struct softgpu_behaviour *softgpu_behaviour_find(const char *name);
struct dma_buf *softgpu_bo_export(struct drm_gem_object *obj, int flags);
struct drm_gem_object *softgpu_prime_import(struct drm_device *drm, struct dma_buf *dmabuf);
void softgpu_dmabuf_release(struct dma_buf *dmabuf);
int softgpu_dmabuf_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma);
int softgpu_dmabuf_vmap(struct dma_buf *dmabuf, struct iosys_map *map);
int softgpu_dmabuf_begin(struct dma_buf *dmabuf, enum dma_data_direction dir);
int softgpu_dmabuf_end(struct dma_buf *dmabuf, enum dma_data_direction dir);

/* sgt.c */
struct sg_table *softgpu_sgt_map(struct softgpu_bo *bo, struct device *dev,
				 enum dma_data_direction dir);
void softgpu_sgt_unmap(struct softgpu_bo *bo, struct device *dev,
		       struct sg_table *sgt, enum dma_data_direction dir);

/* ttm.c (amdgpu and xe), i915.c, nvidia.c (both modes), vfio.c */
extern const struct softgpu_behaviour softgpu_behaves_amdgpu;
extern const struct softgpu_behaviour softgpu_behaves_xe;
extern const struct softgpu_behaviour softgpu_behaves_i915;
extern const struct softgpu_behaviour softgpu_behaves_nvidia;
extern const struct softgpu_behaviour softgpu_behaves_nvidia_coherent;
extern const struct softgpu_behaviour softgpu_behaves_vfio;

/* revoke.c */
int softgpu_bo_revoke(struct softgpu_bo *bo, bool revoke);
void softgpu_revoke_all(struct softgpu_device *gpu);

/* ioctl_*.c */
extern const struct drm_driver softgpu_i915_driver;
extern const struct drm_driver softgpu_xe_driver;
extern const struct drm_driver softgpu_amdgpu_driver;
extern const struct file_operations softgpu_fops;
void softgpu_release(struct drm_device *drm);

/* Members that the three struct drm_driver share. */
#ifdef HAVE_DRIVER_DATE
#define SOFTGPU_DRIVER_DATE .date = "0",
#else
#define SOFTGPU_DRIVER_DATE
#endif

#define SOFTGPU_DRIVER_COMMON						\
	.driver_features = DRIVER_GEM | DRIVER_RENDER,			\
	.gem_prime_import = softgpu_prime_import,			\
	.show_fdinfo = softgpu_show_fdinfo,				\
	.fops = &softgpu_fops,						\
	.release = softgpu_release,					\
	.desc = "software GPU for tests",				\
	SOFTGPU_DRIVER_DATE						\
	.patchlevel = 0

/* sysfs.c */
extern const struct attribute_group *softgpu_groups[];

/* debugfs.c */
void softgpu_debugfs_module_init(void);
void softgpu_debugfs_module_fini(void);
void softgpu_debugfs_add(struct softgpu_device *gpu);
void softgpu_debugfs_remove(struct softgpu_device *gpu);

#endif
