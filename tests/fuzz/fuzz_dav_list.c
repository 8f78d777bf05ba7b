/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what a WebDAV server lists. */
#include "lib/net/dav.h"
#include "tests/fuzz/fuzz.h"

struct seen {
	size_t count;
	size_t members;
};

static int see(void *arg, const struct dav_entry *entry)
{
	static const struct dav_place place = {.authority = "h", .path = "/p/"};
	struct seen *s = arg;
	char name[DAV_HREF_MAX];

	fuzz_assert(entry->href[0] && strnlen(entry->href, DAV_HREF_MAX) < DAV_HREF_MAX);
	fuzz_assert(strnlen(entry->modified, DAV_MODIFIED_MAX) < DAV_MODIFIED_MAX);
	s->count++;
	if (dav_member_name(&place, entry->href, name) == 0) {
		fuzz_assert(name[0] && !strchr(name, '/'));
		s->members++;
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct seen first = {0}, second = {0};
	int r = dav_list_parse(data, len, see, &first);

	/* It depends on nothing but the bytes. */
	fuzz_assert(dav_list_parse(data, len, see, &second) == r);
	fuzz_assert(first.count == second.count && first.members == second.members);
	return 0;
}
