/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files of a corpus folder, as an ordinary test. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "tests/fuzz/fuzz.h"

#define INPUT_MAX (16u << 20)

static int replay_file(int dirfd, const char *name)
{
	cleanup_buf struct buf file = {0};
	cleanup_free uint8_t *exact = NULL;
	int error = io_read_file(dirfd, name, INPUT_MAX, &file);

	if (error)
		return error;
	/* The last line that is seen where the target aborts. */
	printf("%s, %zu bytes\n", name, file.len);
	fflush(stdout);
	exact = fuzz_copy(file.data, file.len);
	LLVMFuzzerTestOneInput(exact, file.len);
	return 0;
}

int main(int argc, char **argv)
{
	cleanup_closedir DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
	const struct dirent *entry;
	int count = 0;

	if (!dir) {
		fprintf(stderr, "usage: %s FOLDER, a folder of inputs\n", argv[0]);
		return 2;
	}
	while ((entry = readdir(dir))) {
		int error;

		if (entry->d_name[0] == '.')
			continue;
		error = replay_file(dirfd(dir), entry->d_name);
		if (error) {
			fprintf(stderr, "%s/%s: %s\n", argv[1], entry->d_name, strerror(-error));
			return 1;
		}
		count++;
	}
	if (!count)
		fprintf(stderr, "%s holds no input\n", argv[1]);
	return count ? 0 : 1;
}
