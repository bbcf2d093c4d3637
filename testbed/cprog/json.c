// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <inttypes.h>
#include <stdio.h>

static const char *separator;

static void quote(const char *s)
{
	putchar('"');
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void name(const char *n)
{
	fputs(separator, stdout);
	separator = ",";
	quote(n);
	putchar(':');
}

void json_begin(void)
{
	separator = "";
	putchar('{');
}

void json_string(const char *n, const char *value)
{
	name(n);
	quote(value);
}

void json_number(const char *n, uint64_t value)
{
	name(n);
	printf("%" PRIu64, value);
}

void json_bool(const char *n, bool value)
{
	name(n);
	fputs(value ? "true" : "false", stdout);
}

void json_end(void)
{
	puts("}");
	fflush(stdout);
}
