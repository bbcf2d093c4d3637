/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROUNDS_H
#define ROUNDS_H

/*
 * Reads numbers from standard input and calls once() so many times for each. It
 * writes the nanoseconds that each call took to standard output as native
 * 64-bit integers. Returns the exit status.
 */
int rounds(void (*once)(void));

#endif
