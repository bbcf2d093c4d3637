// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "errname.h"

#include <string.h>

/* include/linux/errno.h: not for user space, but some drivers return it. */
#define KERNEL_ENOTSUPP 524

const char *errname(int err)
{
	const char *name;

	if (err == 0)
		return "OK";
	if (err == KERNEL_ENOTSUPP)
		return "ENOTSUPP";
	name = strerrorname_np(err);
	return name ? name : "unknown";
}
