/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to transfer, and guard bytes that must not change. */
#ifndef PATTERN_H
#define PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes a seed from the kernel: each call gives other bytes. */
void pattern_random(uint8_t *to, size_t n);

/* guard_intact() says whether guard_fill()'s bytes are there, else where not. */
void guard_fill(uint8_t *buf, size_t from, size_t to);
bool guard_intact(const uint8_t *buf, size_t from, size_t to, size_t *bad);

/* Whether a and b are equal; if not, *bad is the first index that differs. */
bool bytes_equal(const uint8_t *a, const uint8_t *b, size_t n, size_t *bad);

#endif
