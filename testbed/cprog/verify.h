/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VERIFY_H
#define VERIFY_H

#include "options.h"

/*
 * Allocates, registers, writes random bytes by RDMA, reads others back and
 * compares through the CPU's view of the buffer, guard bytes included. Prints
 * one JSON line; returns the exit status.
 */
int verify(const struct options *o);

#endif
