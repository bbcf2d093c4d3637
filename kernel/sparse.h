/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Names that Linux 7's headers use and sparse 0.6.4 does not know. Only sparse
 * reads this, before each file.
 */
#define __typeof_unqual__ __typeof__
/* Linux 7 uses it in a constant expression, for module information. */
#define __builtin_strlen(s) (sizeof(s) - 1)
