// SPDX-License-Identifier: Apache-2.0
#include "pattern.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void pattern_random(uint8_t *to, size_t n)
{
	uint64_t x;

	if (getrandom(&x, sizeof(x), 0) != sizeof(x))
		abort();
	x |= 1;
	for (size_t i = 0; i < n; i += sizeof(x)) {
		size_t left = n - i;

		/* xorshift64: cheap, and never the same word twice in a row */
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(to + i, &x, left < sizeof(x) ? left : sizeof(x));
	}
}

/* Differs between neighbours and between pages. */
static uint8_t guard(size_t i)
{
	return (uint8_t)(0x5a ^ i ^ (i >> 8) ^ (i >> 16));
}

void guard_fill(uint8_t *buf, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		buf[i] = guard(i);
}

bool guard_intact(const uint8_t *buf, size_t from, size_t to, size_t *bad)
{
	for (size_t i = from; i < to; i++) {
		if (buf[i] != guard(i)) {
			*bad = i;
			return false;
		}
	}
	return true;
}

bool bytes_equal(const uint8_t *a, const uint8_t *b, size_t n, size_t *bad)
{
	if (memcmp(a, b, n) == 0)
		return true;
	for (*bad = 0; a[*bad] == b[*bad]; (*bad)++)
		;
	return false;
}
