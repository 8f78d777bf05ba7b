/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: Amazon's two files, credentials and configuration, read together. */
#include "lib/net/aws_files.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct aws_files cleanup_aws_files files = {0};
	/* The first half is the one file, the second the other. */
	size_t half = len / 2;
	uint8_t *first = fuzz_copy(data, half), *second = fuzz_copy(data + half, len - half);

	fuzz_assert(aws_files_parse(&files, (const char *)first, half, false) == 0);
	fuzz_assert(aws_files_parse(&files, (const char *)second, len - half, true) == 0);
	free(first);
	free(second);
	fuzz_assert(files.count <= len);
	for (size_t i = 0; i < files.count; i++) {
		const struct aws_setting *s = &files.settings[i];
		const char *value = aws_files_get(&files, s->section, s->name);

		fuzz_assert(strlen(s->section) + strlen(s->name) + strlen(s->value) <=
			    len + sizeof("services ."));
		fuzz_assert(!value || value[0]);
	}
	return 0;
}
