/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SELFTEST_H
#define SELFTEST_H

#include "options.h"

/*
 * Tests of what the kernel's dma-buf memory regions must and must not do, on
 * one exporter. Prints a line per test:
 *
 *	ok NAME
 *	absent NAME: what the kernel, provider or build lacks
 *	FAIL NAME: what the test saw instead
 *
 * and returns 1 if anything failed. An absent test is no pass: the caller knows
 * which tests may be absent.
 */
int selftest(const struct options *o);

#endif
