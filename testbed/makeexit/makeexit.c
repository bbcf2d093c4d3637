// SPDX-License-Identifier: Apache-2.0
//
// GNU make ends with status 2 whatever a recipe ended with. `make vm` promises
// the guest command's own status, so this function, loaded into make, ends it
// with that: $(makeexit FILE) reads a status from FILE, removes the file, and
// exits unless the status is 0. Without it (a make built without `load`, no
// compiler), make says "Error N" and ends with 2.

#include <gnumake.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int plugin_is_GPL_compatible;

int makeexit_gmk_setup(const gmk_floc *floc);

static char *makeexit(const char *name, unsigned int argc, char **argv)
{
	int status = 0;
	FILE *f;

	(void)name;
	(void)argc;
	f = fopen(argv[0], "r");
	if (!f)
		return NULL;
	if (fscanf(f, "%d", &status) != 1)
		status = 2;
	fclose(f);
	unlink(argv[0]);
	if (status)
		exit(status);
	return NULL;
}

int makeexit_gmk_setup(const gmk_floc *floc)
{
	(void)floc;
	gmk_add_function("makeexit", makeexit, 1, 1, GMK_FUNC_DEFAULT);
	return 1;
}
