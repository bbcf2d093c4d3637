/* SPDX-License-Identifier: Apache-2.0 */
/* One JSON object on one line of stdout, field by field. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stdint.h>

void json_begin(void);
void json_string(const char *name, const char *value);
void json_number(const char *name, uint64_t value);
void json_bool(const char *name, bool value);
void json_end(void);

#endif
