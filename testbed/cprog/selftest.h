/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SELFTEST_H
#define SELFTEST_H

#include "options.h"

/*
 * Tests of what the kernel's dma-buf memory regions must and must not do, on
 * one exporter. Prints a line per test:
 *
 *	ok NAME
 *	absent NAME: what this kernel does not have
 *	FAIL NAME: what was seen instead
 *
 * and returns 1 if anything failed. An absent test is no pass: which ones may
 * be absent is for the caller to know.
 */
int selftest(const struct options *o);

#endif
