/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the head of an answer by HTTP, line by line, as curl hands it over. */
#include "lib/net/http_internal.h"
#include "tests/fuzz/fuzz.h"

#define ends_in(text) fuzz_assert(memchr((text), 0, sizeof(text)))

static void check(const struct http_transfer *t)
{
	const struct http_answer *a = t->answer;

	fuzz_assert(a->status >= 0 && a->status <= 999);
	fuzz_assert(t->retry_after_ns >= 0);
	fuzz_assert(a->date_ns >= 0);
	ends_in(a->etag);
	ends_in(a->content_range);
	ends_in(a->location);
	ends_in(a->allow);
	ends_in(a->dav);
	ends_in(a->server);
	ends_in(a->lock_token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct http_answer cleanup_http_answer answer = {.length = UINT64_MAX};
	struct http_transfer t = {.answer = &answer};

	while (len) {
		const uint8_t *newline = memchr(data, '\n', len);
		size_t line = newline ? (size_t)(newline - data) + 1 : len;
		uint8_t *copy = fuzz_copy(data, line);

		http_header_line(&t, (const char *)copy, line);
		free(copy);
		check(&t);
		data += line;
		len -= line;
	}
	return 0;
}
