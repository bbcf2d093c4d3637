// SPDX-License-Identifier: Apache-2.0
/*
 * dmabuf-mr: registers dma-buf memory with an RDMA device and moves bytes
 * through it, using libibverbs and the raw ioctl only.
 *
 *   dmabuf-mr verify   one JSON line: route, keys, bytes, or what stage failed
 *   dmabuf-mr bench    one JSON line, and nanoseconds per round in a file
 *   dmabuf-mr selftest tests of the kernel's side, see selftest.h
 *
 * Exit status: 0 for success, 1 for a refusal or a failed comparison, 2 for
 * wrong usage.
 */
#include "options.h"
#include "selftest.h"
#include "verify.h"
#include "bench.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct options o;

	if (!options_parse(&o, argc, argv)) {
		options_usage(stderr);
		return 2;
	}
	if (strcmp(o.command, "verify") == 0)
		return verify(&o);
	if (strcmp(o.command, "bench") == 0)
		return bench(&o);
	return selftest(&o);
}
