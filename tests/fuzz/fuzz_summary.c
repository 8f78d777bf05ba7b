/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: summaries of records, read from a remote as a mount does. */
#include "lib/meta/records.h"

#include "lib/format/names.h"
#include "lib/format/record.h"
#include "lib/net/open.h"
#include "lib/util/log.h"
#include "tests/fuzz/fuzz.h"

/* The summary of epochs 101 to 200. */
#define LAST  200
#define AFTER 50

static int take(void *arg, uint64_t number, const char *text)
{
	struct epoch_record record;
	unsigned *given = arg;

	fuzz_assert(number > LAST - SUMMARY_EVERY && number <= LAST);
	if (record_decode(text, strlen(text), &record) == 0) {
		fuzz_assert(record.number == number);
		record_free(&record);
	}
	/* Who has enough ends the walk. */
	return ++*given == SUMMARY_EVERY ? 1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct remote *remote;
	unsigned given = 0;
	char key[KEY_MAX];
	int result;

	log_set_level(LOG_LEVEL_ERROR);
	fuzz_assert(remote_open("memory:summary", &remote) == 0);
	summary_key(LAST, key);
	fuzz_assert(remote_put(remote, key, data, len) == 0);
	result = summary_each(remote, AFTER, take, &given);
	fuzz_assert(result == 0 || (result == 1 && given == SUMMARY_EVERY));
	given = 0;
	fuzz_assert(summary_each(remote, LAST, take, &given) == 0 && given == 0);
	fuzz_assert(summary_forget(remote, LAST) == 0);
	fuzz_assert(summary_each(remote, 0, take, &given) == 0 && given == 0);
	remote_close(remote);
	return 0;
}
