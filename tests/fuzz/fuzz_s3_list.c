/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what S3 answers: a page of a list, versions, the failures of a delete, an error. */
#include "lib/net/s3_xml.h"
#include "tests/fuzz/fuzz.h"

static int count_failure(void *arg, const struct s3_error *e)
{
	fuzz_assert(e->code[0] && strlen(e->code) < sizeof(e->code));
	fuzz_assert(strlen(e->message) < sizeof(e->message));
	++*(unsigned *)arg;
	return 0;
}

static int count_version(void *arg, const struct s3_version *v)
{
	fuzz_assert(v->key[0] && v->id[0]);
	++*(unsigned *)arg;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct s3_page cleanup_s3_page page = {0};
	uint8_t *copy = fuzz_copy(data, len);
	unsigned failures = 0, versions = 0;
	struct s3_error e;

	s3_failures_decode(copy, len, count_failure, &failures);
	fuzz_assert(failures <= S3_DELETE_MAX);
	s3_versions_decode(copy, len, count_version, &versions);
	fuzz_assert(versions <= len);
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
