// SPDX-License-Identifier: Apache-2.0
//go:build cgo

#include "verbs_lib.h"
#include "verbs_status.h"

int vb_create_srq(const struct vb_lib *lib, struct vb_pd *pd,
		  struct vb_srq_init_attr *attr, struct vb_srq **out)
{
	errno = 0;
	*out = lib->create_srq(pd, attr);
	return *out ? 0 : vb_failure();
}

int vb_modify_srq(const struct vb_lib *lib, struct vb_srq *srq,
		  struct vb_srq_attr *attr, int mask)
{
	errno = 0;
	return vb_status(lib->modify_srq(srq, attr, mask));
}

int vb_query_srq(const struct vb_lib *lib, struct vb_srq *srq,
		 struct vb_srq_attr *attr)
{
	errno = 0;
	return vb_status(lib->query_srq(srq, attr));
}

int vb_destroy_srq(const struct vb_lib *lib, struct vb_srq *srq)
{
	errno = 0;
	return vb_status(lib->destroy_srq(srq));
}
