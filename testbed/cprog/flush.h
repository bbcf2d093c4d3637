/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * FLUSH is younger than the libibverbs of Debian 12. The access flags are the
 * kernel's (include/uapi/rdma/ib_user_ioctl_verbs.h, Linux 6.2). Posting the
 * operation needs a libibverbs that has it: then the makefile defines
 * HAVE_IBV_WR_FLUSH.
 */
#ifndef FLUSH_H
#define FLUSH_H

#include <infiniband/verbs.h>

#define ACCESS_FLUSH_GLOBAL	(1u << 8)
#define ACCESS_FLUSH_PERSISTENT	(1u << 9)

#ifdef HAVE_IBV_WR_FLUSH
#define QP_EX_WITH_FLUSH	IBV_QP_EX_WITH_FLUSH
#define HAVE_FLUSH		1
#else
#define QP_EX_WITH_FLUSH	0
#define HAVE_FLUSH		0
#endif

#endif
