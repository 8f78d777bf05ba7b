/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a page of an S3 list, and the errors of S3. */
#include "lib/remote/s3_xml.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct s3_page cleanup_s3_page page = {0};
	uint8_t *copy = fuzz_copy(data, len);
	struct s3_error e;

	s3_error_decode(copy, len, &e);
	fuzz_assert(strlen(e.code) < sizeof(e.code) && strlen(e.message) < sizeof(e.message));
	if (s3_page_decode(copy, len, &page) == 0) {
		fuzz_assert(page.count <= 1000);
		for (size_t i = 0; i < page.count; i++)
			fuzz_assert(page.objects[i].key && strlen(page.objects[i].key) <= len);
		fuzz_assert(!page.next || page.next[0]);
	}
	free(copy);
	return 0;
}
