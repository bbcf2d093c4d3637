// SPDX-License-Identifier: Apache-2.0
/*
 * bar-search: is a nonce in a PCI device's memory? It maps every memory BAR of
 * the device through sysfs and looks at each multiple of 8 bytes, as the device
 * itself would see them. It knows nothing of dma-bufs, GPUs or RDMA.
 *
 *   bar-search NONCE PCI...      NONCE in hexadecimal, PCI such as 0000:03:00.0
 *
 * Status 0: found, 1: found nowhere, 2: not found, and a device could not be searched.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define IORESOURCE_MEM 0x200 /* linux/ioport.h */
#define BARS 6

static unsigned char nonce[256];
static size_t nonce_len;
static uint64_t looked; /* bytes */

static int parse_nonce(const char *hex)
{
	size_t n = strlen(hex);

	if (n < 16 || n % 16 || n / 2 > sizeof(nonce))
		return -1;
	for (nonce_len = 0; nonce_len < n / 2; nonce_len++) {
		if (!isxdigit(hex[2 * nonce_len]) || !isxdigit(hex[2 * nonce_len + 1]) ||
		    sscanf(hex + 2 * nonce_len, "%2hhx", &nonce[nonce_len]) != 1)
			return -1;
	}
	return 0;
}

/* Reads device memory by words: not every device answers vector loads. */
static int matches(const volatile uint64_t *at, size_t left)
{
	unsigned char here[sizeof(nonce)];

	if (left < nonce_len)
		return 0;
	for (size_t i = 0; i < nonce_len; i += sizeof(*at)) {
		uint64_t word = at[i / sizeof(*at)];

		memcpy(here + i, &word, sizeof(word));
	}
	return !memcmp(here, nonce, nonce_len);
}

static int search(const char *pci, int bar, uint64_t size)
{
	const volatile uint64_t *map;
	uint64_t first;
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource%d", pci, bar);
	fd = open(path, O_RDONLY | O_SYNC | O_CLOEXEC);
	if (fd < 0)
		return -1;
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return -1;
	memcpy(&first, nonce, sizeof(first));
	for (uint64_t off = 0; off + sizeof(first) <= size; off += sizeof(first)) {
		if (map[off / sizeof(first)] != first || !matches(map + off / sizeof(first), size - off))
			continue;
		printf("found in BAR %d of %s at %#" PRIx64 "\n", bar, pci, off);
		return 1;
	}
	looked += size;
	return 0;
}

/* 1 found, 0 not found, -1 could not look. */
static int search_device(const char *pci)
{
	uint64_t start, end, flags, before = looked;
	char path[128];
	int found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", pci);
	f = fopen(path, "re");
	if (!f) {
		fprintf(stderr, "bar-search: %s: %s\n", path, strerror(errno));
		return -1;
	}
	for (int bar = 0; bar < BARS && found != 1; bar++) {
		if (fscanf(f, "%" SCNx64 " %" SCNx64 " %" SCNx64, &start, &end, &flags) != 3)
			break;
		if (!(flags & IORESOURCE_MEM) || end <= start)
			continue;
		/* The kernel may refuse to map a BAR of registers: try the others. */
		found = search(pci, bar, end - start + 1);
		if (found < 0)
			fprintf(stderr, "bar-search: BAR %d of %s: %s\n", bar, pci, strerror(errno));
	}
	fclose(f);
	if (found == 1)
		return 1;
	if (looked > before)
		return 0;
	fprintf(stderr, "bar-search: %s: no BAR of memory could be searched\n", pci);
	return -1;
}

int main(int argc, char **argv)
{
	int unread = 0;

	if (argc < 3 || parse_nonce(argv[1])) {
		fprintf(stderr, "usage: bar-search NONCE PCI...\n"
				"NONCE: 8 to 256 bytes in hexadecimal, a multiple of 8; PCI: such as 0000:03:00.0\n");
		return 2;
	}
	for (int i = 2; i < argc; i++) {
		int found = search_device(argv[i]);

		if (found > 0)
			return 0;
		if (found < 0)
			unread = 1;
	}
	printf("found nowhere in %" PRIu64 " KiB of BARs\n", looked >> 10);
	return unread ? 2 : 1;
}
