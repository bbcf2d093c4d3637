/* SPDX-License-Identifier: Apache-2.0 */
/* How libibverbs' functions and its providers' report failure. */
#ifndef GPURDMA_VERBS_STATUS_H
#define GPURDMA_VERBS_STATUS_H

#include <errno.h>

/* EIO stands for a failure without errno. */
static inline int vb_failure(void)
{
	return errno ? errno : EIO;
}

/*
 * Functions that return an int are documented to return the errno itself;
 * some providers return -1 and set errno, some a negative errno.
 */
static inline int vb_status(int rc)
{
	if (rc > 0)
		return rc;
	if (rc == -1)
		return vb_failure();
	return -rc;
}

#endif
