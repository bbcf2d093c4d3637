// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/PID/fdinfo of a DRM file: the sizes of its buffers by place, with the
 * keys of Documentation/gpu/drm-usage-stats.rst.
 */
#include <linux/idr.h>

#include <drm/drm_print.h>

#include "softgpu.h"

struct usage {
	u64 total;
	u64 resident;
};

static void show(struct drm_printer *p, const char *region, const struct usage *usage)
{
	drm_printf(p, "drm-total-%s:\t%llu KiB\n", region, usage->total >> 10);
	drm_printf(p, "drm-memory-%s:\t%llu KiB\n", region, usage->resident >> 10);
	drm_printf(p, "drm-resident-%s:\t%llu KiB\n", region, usage->resident >> 10);
}

void softgpu_show_fdinfo(struct drm_printer *p, struct drm_file *file)
{
	struct usage vram = {}, system = {};
	struct drm_gem_object *obj;
	int id;

	spin_lock(&file->table_lock);
	idr_for_each_entry(&file->object_idr, obj, id) {
		struct softgpu_bo *bo = to_bo(obj);
		enum softgpu_place place = READ_ONCE(bo->place);

		if (bo->preferred & SOFTGPU_VRAM)
			vram.total += obj->size;
		else
			system.total += obj->size;
		if (place == SOFTGPU_VRAM)
			vram.resident += obj->size;
		else if (place == SOFTGPU_SYSTEM)
			system.resident += obj->size;
	}
	spin_unlock(&file->table_lock);
	/* Each driver has its own names of the regions; amdgpu's come last. */
	if (!strcmp(file->minor->dev->driver->name, "i915")) {
		show(p, "local0", &vram);
		show(p, "system0", &system);
	} else if (!strcmp(file->minor->dev->driver->name, "xe")) {
		show(p, "vram0", &vram);
		show(p, "gtt", &system);
	} else {
		show(p, "vram", &vram);
		show(p, "gtt", &system);
	}
}
