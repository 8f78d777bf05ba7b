/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of garbage collection share: epochs of random files, collecting, and what must hold after that. */
#ifndef EPOCHFS_TESTS_GC_UNIT_H
#define EPOCHFS_TESTS_GC_UNIT_H

#include <inttypes.h>
#include "lib/admin/catalog.h"
#include "lib/meta/records.h"
#include "tests/unit/catalog_unit.h"

#define DAY (24 * 3600 * NS_PER_S)

/* An epoch with files "f<seed>" of `len` random bytes each, seeds [first, first + count). */
__attribute__((unused)) static uint64_t put_epoch(struct made *m, uint64_t first, size_t count,
						  size_t len)
{
	made_begin(m);
	for (size_t i = 0; i < count; i++) {
		cleanup_free uint8_t *data = random_content(len, first + i);
		char name[16];

		snprintf(name, sizeof(name), "f%02" PRIu64, first + i);
		made_add(m, 1, name, made_content(m, data, len));
	}
	return made_end(m, (struct epoch_record){0});
}

__attribute__((unused)) static void drop(struct made *m, uint64_t number)
{
	unit_ok(records_drop(m->f.below, number, NULL));
}

__attribute__((unused)) static int quiet_gc(const struct gc *how, struct gc_totals *ret_totals,
					    char **ret_message)
{
	*ret_message = NULL;
	memset(ret_totals, 0, sizeof(*ret_totals));
	return catalog_collect("memory:t", how, ret_totals, ret_message);
}

__attribute__((unused)) static struct gc_totals collect(int64_t grace_ns)
{
	const struct gc how = {.grace_ns = grace_ns, .keep_percent = GC_KEEP_PERCENT};
	cleanup_free char *message = NULL;
	struct gc_totals t;
	int error = quiet_gc(&how, &t, &message);

	ck_assert_msg(!error, "gc: %d: %s", error, message ? message : "");
	return t;
}

__attribute__((unused)) static void assert_refuses(int want, const char *part)
{
	const struct gc how = {.grace_ns = 0, .keep_percent = GC_KEEP_PERCENT};
	cleanup_free char *message = NULL;
	struct gc_totals t;

	unit_error(quiet_gc(&how, &t, &message), want);
	ck_assert_msg(message && strstr(message, part), "%s", message ? message : "no message");
}

__attribute__((unused)) static void on_problem(void *arg, const char *key, const char *where,
					       const char *what)
{
	(void)arg;
	/* As catalog_unit.h makes them. */
	ck_assert_msg(!strcmp(what, "belongs to another volume"), "fsck: %s: %s: %s", key, where,
		      what);
}

/* Everything that is there can be read, from a cold start; and so much is left over. */
__attribute__((unused)) static void assert_whole(uint64_t epochs, uint64_t orphans)
{
	const struct catalog_fsck how = {.read_data = true, .problem = on_problem};
	struct catalog_fsck_totals t = {0};
	char *message = NULL;

	unit_ok(catalog_fsck("memory:t", &how, &t, &message));
	ck_assert_uint_eq(t.epochs, epochs);
	ck_assert_uint_eq(t.orphans, orphans);
}

__attribute__((unused)) static bool is_there(struct made *m, const char *key)
{
	uint64_t size;

	return remote_size(m->f.below, key, &size) == 0;
}

#endif
