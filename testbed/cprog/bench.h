/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_H
#define BENCH_H

#include "options.h"

/*
 * Repeats one operation and prints a JSON line with its percentiles. Each round
 * times one registration and its deregistration, or one RDMA WRITE or READ of the
 * whole MR from post to completion. Returns the exit status.
 */
int bench(const struct options *o);

#endif
