// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the software GPU and the test importer, on one GPU.
 *
 *   softgpu-test GPU NEAR-EDU FAR-EDU [TEST...]
 *
 * The arguments are PCI addresses: NEAR-EDU is behind the GPU's switch, FAR-EDU
 * below another root port. Each test is a process of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testlib.h"

static bool wanted(int argc, char **argv, const struct test *test)
{
	int i;

	for (i = 4; i < argc; i++)
		if (!strcmp(argv[i], test->name))
			return true;
	return argc <= 4 && !test->on_request;
}

static int not_run;

/* run.sh names the tests that may be skipped here in SOFTGPU_MAY_SKIP. */
static bool may_skip(const char *name)
{
	const char *list = getenv("SOFTGPU_MAY_SKIP");
	const char *at = list ? strstr(list, name) : NULL;
	size_t n = strlen(name);

	for (; at; at = strstr(at + 1, name))
		if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ' '))
			return true;
	return false;
}

static int run(const struct test *test, const char *bdf)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		struct gpu *gpu = gpu_open(bdf);

		test->run(gpu);
		gpu_close(gpu);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_HERE) {
		/* not_here() has printed the reason. */
		printf("%s\n", test->name);
		if (!may_skip(test->name)) {
			printf("FAIL %s: skipped, and SOFTGPU_MAY_SKIP does not name it\n",
			       test->name);
			return 1;
		}
		not_run++;
		return 0;
	}
	printf("%s %s\n", status ? "FAIL" : "ok", test->name);
	return status != 0;
}

int main(int argc, char **argv)
{
	const struct test *const lists[] = {
		ioctl_tests, memory_tests, importer_tests, fault_tests, rdma_tests,
		life_tests,
	};
	const struct test *test;
	int bad = 0, ran = 0;
	unsigned int i;

	if (argc < 4) {
		fprintf(stderr, "usage: softgpu-test GPU NEAR-EDU FAR-EDU [TEST...]\n");
		return 2;
	}
	near_edu = argv[2];
	far_edu = argv[3];
	for (i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		for (test = lists[i]; test->name; test++)
			if (wanted(argc, argv, test)) {
				ran++;
				bad += run(test, argv[1]);
			}
	printf("%d tests: %d passed, %d failed, %d not for this kernel\n", ran,
	       ran - bad - not_run, bad, not_run);
	return bad || !ran;
}
