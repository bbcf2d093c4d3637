/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VERIFY_H
#define VERIFY_H

#include "options.h"

/*
 * Allocates and registers a buffer, writes random bytes to it by RDMA, reads other
 * bytes from it by RDMA, and compares both, and the guard bytes, with the CPU's
 * view of the buffer. Prints one JSON line; returns the exit status.
 */
int verify(const struct options *o);

#endif
