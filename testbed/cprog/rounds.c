// SPDX-License-Identifier: Apache-2.0
/* The timed loop of the C sides of `make bench`: see rounds.h. */
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "rounds.h"

#define MOST 65536

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int rounds(void (*once)(void))
{
	static uint64_t ns[MOST];
	unsigned int n;

	while (scanf("%u", &n) == 1) {
		if (n == 0 || n > MOST)
			errx(2, "1 to %d rounds at a time", MOST);
		for (unsigned int i = 0; i < n; i++) {
			uint64_t start = now();

			once();
			ns[i] = now() - start;
		}
		if (fwrite(ns, sizeof(ns[0]), n, stdout) != n || fflush(stdout))
			err(1, "write");
	}
	return 0;
}
