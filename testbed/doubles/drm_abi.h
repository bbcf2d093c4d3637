/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few DRM definitions that vgem needs, from include/uapi/drm/drm.h and
 * drm_mode.h: the package with these headers is not always installed.
 */
#ifndef DOUBLES_DRM_ABI_H
#define DOUBLES_DRM_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

struct drm_version {
	int version_major, version_minor, version_patchlevel;
	size_t name_len;
	char *name;
	size_t date_len;
	char *date;
	size_t desc_len;
	char *desc;
};

struct drm_gem_close {
	uint32_t handle, pad;
};

struct drm_prime_handle {
	uint32_t handle, flags;
	int32_t fd;
};

struct drm_mode_create_dumb {
	uint32_t height, width, bpp, flags, handle, pitch;
	uint64_t size;
};

struct drm_mode_map_dumb {
	uint32_t handle, pad;
	uint64_t offset;
};

#define DRM_CLOEXEC 02000000
#define DRM_RDWR 02
#define DRM_IOCTL_VERSION _IOWR('d', 0x00, struct drm_version)
#define DRM_IOCTL_GEM_CLOSE _IOW('d', 0x09, struct drm_gem_close)
#define DRM_IOCTL_PRIME_HANDLE_TO_FD _IOWR('d', 0x2d, struct drm_prime_handle)
#define DRM_IOCTL_MODE_CREATE_DUMB _IOWR('d', 0xb2, struct drm_mode_create_dumb)
#define DRM_IOCTL_MODE_MAP_DUMB _IOWR('d', 0xb3, struct drm_mode_map_dumb)

#endif
