/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to move and bytes that must not move. */
#ifndef PATTERN_H
#define PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Seeds from the kernel; each call gives other bytes. */
void pattern_random(uint8_t *to, size_t n);

/* What guard_fill() puts at an index, and whether it is still there. */
void guard_fill(uint8_t *buf, size_t from, size_t to);
bool guard_intact(const uint8_t *buf, size_t from, size_t to, size_t *bad);

/* The first index at which a and b differ in *bad. */
bool bytes_equal(const uint8_t *a, const uint8_t *b, size_t n, size_t *bad);

#endif
