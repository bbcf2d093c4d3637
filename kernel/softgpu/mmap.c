// SPDX-License-Identifier: GPL-2.0
/* The CPU's mappings of a buffer: page faults, which follow moves, and vmap. */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/vmalloc.h>

#include <drm/drm_vma_manager.h>

#include "softgpu.h"

/* Pages mapped by one fault: as many as TTM does (TTM_BO_VM_NUM_PREFAULT). */
#define FAULT_AROUND 16

static vm_fault_t insert_page_at(struct softgpu_bo *bo, struct vm_area_struct *vma,
				 unsigned long address, unsigned long index)
{
	struct softgpu_device *gpu = bo_gpu(bo);
	u64 offset = (u64)index << PAGE_SHIFT;

	if (bo->place == SOFTGPU_SYSTEM)
		return vmf_insert_pfn_prot(vma, address, page_to_pfn(bo->pages[index]),
					   vma->vm_page_prot);
	softgpu_vram_show(gpu, bo->node->start + offset, PAGE_SIZE);
	return vmf_insert_pfn_prot(vma, address,
				   PHYS_PFN(gpu->bar_phys + bo->node->start + offset),
				   pgprot_writecombine(vma->vm_page_prot));
}

static vm_fault_t fault_locked(struct softgpu_bo *bo, struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long index = vmf->pgoff - drm_vma_node_start(&bo->base.vma_node);
	unsigned long address = vmf->address & PAGE_MASK;
	vm_fault_t ret = VM_FAULT_NOPAGE;
	unsigned int i;
	long err;

	if (index >= bo_npages(bo))
		return VM_FAULT_SIGBUS;
	err = softgpu_bo_validate_cpu(bo);
	if (err == -ENOMEM)
		return VM_FAULT_OOM;
	if (err)
		return VM_FAULT_SIGBUS;
	/* The move to this place may still be under way. */
	err = dma_resv_wait_timeout(bo->base.resv, DMA_RESV_USAGE_KERNEL, true,
				    MAX_SCHEDULE_TIMEOUT);
	if (err < 0)
		return VM_FAULT_NOPAGE;
	for (i = 0; i < FAULT_AROUND; i++) {
		if (address >= vma->vm_end || index >= bo_npages(bo))
			break;
		ret = insert_page_at(bo, vma, address, index);
		/* Only the first page has to be mapped: the fault is there. */
		if (ret & VM_FAULT_ERROR)
			return i ? VM_FAULT_NOPAGE : ret;
		address += PAGE_SIZE;
		index++;
	}
	return ret;
}

static vm_fault_t softgpu_fault(struct vm_fault *vmf)
{
	struct softgpu_bo *bo = to_bo(vmf->vma->vm_private_data);
	vm_fault_t ret;
	int idx;

	if (!drm_dev_enter(bo->base.dev, &idx))
		return VM_FAULT_SIGBUS;
	ret = VM_FAULT_NOPAGE;
	if (!dma_resv_lock_interruptible(bo->base.resv, NULL)) {
		ret = fault_locked(bo, vmf);
		dma_resv_unlock(bo->base.resv);
	}
	drm_dev_exit(idx);
	return ret;
}

const struct vm_operations_struct softgpu_vm_ops = {
	.fault = softgpu_fault,
	.open = drm_gem_vm_open,
	.close = drm_gem_vm_close,
};

/* As ttm_bo_mmap_obj(): no private copies, and no pages that GUP can pin. */
int softgpu_bo_mmap(struct drm_gem_object *obj, struct vm_area_struct *vma)
{
	struct softgpu_bo *bo = to_bo(obj);

	/* amdgpu_gem_object_mmap() */
	if (bo->no_cpu)
		return -EPERM;
	if (vma_is_cow_mapping(vma))
		return -EINVAL;
	vm_flags_set(vma, VM_PFNMAP | VM_IO | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_page_prot = vm_get_page_prot(vma->vm_flags);
	return 0;
}

static int vmap_locked(struct softgpu_bo *bo, struct iosys_map *map)
{
	struct softgpu_device *gpu = bo_gpu(bo);
	int ret;

	/* A kernel mapping does not follow moves, so a vmap pins the buffer. */
	ret = softgpu_bo_validate_cpu(bo);
	if (ret)
		return ret;
	if (bo->place == SOFTGPU_VRAM) {
		softgpu_vram_show(gpu, bo->node->start, bo->base.size);
		iosys_map_set_vaddr_iomem(map, gpu->bar + bo->node->start);
	} else {
		if (!bo->vaddr)
			bo->vaddr = vmap(bo->pages, bo_npages(bo), VM_MAP, PAGE_KERNEL);
		if (!bo->vaddr)
			return -ENOMEM;
		iosys_map_set_vaddr(map, bo->vaddr);
	}
	bo->vmaps++;
	bo->pins++;
	return 0;
}

int softgpu_bo_vmap(struct drm_gem_object *obj, struct iosys_map *map)
{
	struct softgpu_bo *bo = to_bo(obj);
	int ret, idx;

	dma_resv_assert_held(obj->resv);
	ret = softgpu_fail(bo_gpu(bo), SOFTGPU_OP_VMAP);
	if (ret)
		return ret;
	if (!drm_dev_enter(obj->dev, &idx))
		return -ENODEV;
	ret = vmap_locked(bo, map);
	drm_dev_exit(idx);
	return ret;
}

void softgpu_bo_vunmap(struct drm_gem_object *obj, struct iosys_map *map)
{
	struct softgpu_bo *bo = to_bo(obj);

	dma_resv_assert_held(obj->resv);
	if (WARN_ON(!bo->vmaps))
		return;
	if (!--bo->vmaps && bo->vaddr) {
		vunmap(bo->vaddr);
		bo->vaddr = NULL;
	}
	softgpu_bo_unpin(bo);
	iosys_map_clear(map);
}
