// SPDX-License-Identifier: GPL-2.0
/* Creates buffers, gives them handles, and frees them. */
#include <linux/overflow.h>
#include <linux/slab.h>

#include "softgpu.h"

static void softgpu_gem_free(struct drm_gem_object *obj)
{
	struct softgpu_bo *bo = to_bo(obj);
	struct softgpu_device *gpu = bo_gpu(bo);

	mutex_lock(&gpu->bos_lock);
	list_del(&bo->link);
	mutex_unlock(&gpu->bos_lock);
	WARN_ON(bo->pins || bo->maps || bo->vmaps);
	softgpu_bo_release_memory(bo);
	drm_gem_object_release(obj);
	kfree(bo);
}

static const struct drm_gem_object_funcs softgpu_gem_funcs = {
	.free = softgpu_gem_free,
	.export = softgpu_bo_export,
	.vmap = softgpu_bo_vmap,
	.vunmap = softgpu_bo_vunmap,
	.mmap = softgpu_bo_mmap,
	.vm_ops = &softgpu_vm_ops,
};

/* Returns a buffer with one reference. */
struct softgpu_bo *softgpu_bo_create(struct softgpu_device *gpu,
				     const struct softgpu_bo_params *params)
{
	struct softgpu_bo *bo;
	u64 size = params->size;
	int ret;

	ret = softgpu_fail(gpu, SOFTGPU_OP_CREATE);
	if (ret)
		return ERR_PTR(ret);
	if (!size || size > S64_MAX - PAGE_SIZE || !params->allowed)
		return ERR_PTR(-EINVAL);
	bo = kzalloc_obj(*bo);
	if (!bo)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&bo->lru);
	bo->allowed = params->allowed;
	bo->preferred = params->preferred;
	bo->align = max_t(u64, params->align, PAGE_SIZE);
	bo->visible = params->visible;
	bo->no_cpu = params->no_cpu;
	bo->no_export = params->no_export;
	bo->base.funcs = &softgpu_gem_funcs;
	drm_gem_private_object_init(&gpu->drm, &bo->base, PAGE_ALIGN(size));
	mutex_lock(&gpu->bos_lock);
	list_add_tail(&bo->link, &gpu->bos);
	mutex_unlock(&gpu->bos_lock);

	ret = drm_gem_create_mmap_offset(&bo->base);
	if (!ret && !params->defer) {
		ret = dma_resv_lock_interruptible(bo->base.resv, NULL);
		if (!ret) {
			ret = softgpu_bo_validate(bo, bo->preferred, bo->visible);
			if (ret && bo->allowed != bo->preferred && ret != -E2BIG)
				ret = softgpu_bo_validate(bo, bo->allowed, bo->visible);
			dma_resv_unlock(bo->base.resv);
		}
	}
	if (ret) {
		drm_gem_object_put(&bo->base);
		return ERR_PTR(ret);
	}
	return bo;
}

/* Gives the buffer a handle, which takes over the caller's reference. */
int softgpu_bo_publish(struct softgpu_bo *bo, struct drm_file *file, u32 *handle)
{
	int ret = drm_gem_handle_create(file, &bo->base, handle);

	drm_gem_object_put(&bo->base);
	return ret;
}
