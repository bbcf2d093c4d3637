/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "mr.h"

struct options {
	const char *command;	/* verify, bench or selftest */
	const char *device;	/* NULL: the first one */
	const char *exporter;
	const char *output;	/* bench: file for nanoseconds, or NULL */
	const char *operation;	/* bench: register, write or read */
	const char *only;	/* selftest: this test alone, or NULL */
	enum route route;
	uint8_t port;
	int gid_index;		/* -1: choose */
	size_t size;
	struct range range;	/* length 0: up to the end of the buffer */
	bool iova_given;	/* otherwise the offset is the IOVA */
	bool length_given;
	unsigned int access;
	unsigned long count;
	bool stock;		/* selftest: rxe is Debian's own */
};

bool options_parse(struct options *o, int argc, char **argv);
void options_usage(FILE *to);

#endif
