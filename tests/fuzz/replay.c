/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target on each file of its corpus, without libFuzzer: the corpus as a test. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "lib/util/io.h"
#include "tests/fuzz/fuzz.h"

#define LARGEST ((size_t)64 << 20)

static int replay(int dirfd, const char *name)
{
	cleanup_buf struct buf b = {0};
	cleanup_free uint8_t *exact = NULL;
	int error = io_read_file(dirfd, name, LARGEST, &b);

	if (error) {
		fprintf(stderr, "%s: %s\n", name, strerror(-error));
		return error;
	}
	/* A block of just its length: a read past the end is seen by AddressSanitizer. */
	exact = malloc(b.len ? b.len : 1);
	if (!exact)
		return -ENOMEM;
	if (b.len)
		memcpy(exact, b.data, b.len);
	/* The last line of a crash names the input. */
	printf("%s\n", name);
	fflush(stdout);
	LLVMFuzzerTestOneInput(exact, b.len);
	return 0;
}

int main(int argc, char **argv)
{
	cleanup_closedir DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
	struct dirent *d;
	size_t count = 0;

	if (!dir) {
		fprintf(stderr, "usage: %s CORPUS-DIRECTORY\n", argv[0]);
		return 2;
	}
	while ((d = readdir(dir))) {
		if (d->d_name[0] == '.')
			continue;
		if (replay(dirfd(dir), d->d_name))
			return 1;
		count++;
	}
	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	printf("%zu inputs\n", count);
	return count ? 0 : 1;
}
