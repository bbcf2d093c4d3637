// SPDX-License-Identifier: Apache-2.0
//go:build cgo

#include "verbs_lib.h"
#include "verbs_status.h"

int vb_create_ah(const struct vb_lib *lib, struct vb_pd *pd,
		 struct vb_ah_attr *attr, struct vb_ah **out)
{
	errno = 0;
	*out = lib->create_ah(pd, attr);
	return *out ? 0 : vb_failure();
}

int vb_create_ah_from_wc(const struct vb_lib *lib, struct vb_pd *pd,
			 struct vb_wc *wc, struct vb_grh *grh, uint8_t port,
			 struct vb_ah **out)
{
	errno = 0;
	*out = lib->create_ah_from_wc(pd, wc, grh, port);
	return *out ? 0 : vb_failure();
}

int vb_destroy_ah(const struct vb_lib *lib, struct vb_ah *ah)
{
	errno = 0;
	return vb_status(lib->destroy_ah(ah));
}
