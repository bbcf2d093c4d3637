/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ERRNAME_H
#define ERRNAME_H

/* The symbolic name of an errno; the kernel's own 524 included. */
const char *errname(int err);

#endif
