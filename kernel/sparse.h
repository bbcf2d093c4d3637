/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What headers of Linux 7 want and sparse 0.6.4 does not know. Read by sparse
 * alone, before each file.
 */
#define __typeof_unqual__ __typeof__
/* Module information is measured by it, in a constant expression. */
#define __builtin_strlen(s) (sizeof(s) - 1)
