/* SPDX-License-Identifier: Apache-2.0 */
/* An epoch that has what was stored before its seal, and what of that a collection has condemned meanwhile. */
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>

#include "lib/admin/catalog.h"
#include "lib/upload/upload.h"
#include "tests/unit/machines_unit.h"

#define MIB ((size_t)1 << 20)
/* More than two packs of 32 MiB: the first is put while the others are filled. */
#define LARGE	  (70 * MIB)
#define SMALL	  (2 * MIB)
#define PACKS_MAX 16
#define FIRST	  "an epoch, so that there is something to collect beside"

static bool tells(const char *key)
{
	json_t *status = json_object();
	bool there;

	unit_ok(uploader_status(u.vol, status));
	there = json_object_get(json_object_get(status, "upload"), key) != NULL;
	json_decref(status);
	return there;
}

/* The remote is a directory: its writes are writes of this process. */
static void start(void)
{
	mu_start();
	volume_close(u.vol);
	remote_close(mu_remote);
	free(u.remote);
	u.remote = unit_dir();
	unit_ok(remote_open(u.remote, &mu_remote));
	eu_options.upload_ahead = SMALL;
	eu_mount();
	eu_save("first", FIRST);
	mu_drain();
}

struct packs {
	char keys[PACKS_MAX][KEY_MAX];
	size_t count;
};

static int note_pack(void *arg, const char *key, uint64_t size)
{
	struct packs *p = arg;

	(void)size;
	ck_assert_uint_lt(p->count, PACKS_MAX);
	snprintf(p->keys[p->count++], KEY_MAX, "%s", key);
	return 0;
}

static struct packs packs_now(void)
{
	struct packs p = {0};

	unit_ok(remote_list(mu_remote, PREFIX_PACKS, note_pack, &p));
	return p;
}

/* A file that is in the remote and not sealed yet; then all that no epoch names is on the list of what goes. */
static void save_condemned(size_t len)
{
	const struct gc how = {.grace_ns = EU_LONG, .keep_percent = GC_KEEP_PERCENT};
	size_t indexes = mu_count(PREFIX_INDEX);
	cleanup_free char *message = NULL;
	struct gc_totals totals = {0};
	int error;

	mu_save_noise("file", len, 1);
	unit_until(mu_count(PREFIX_INDEX) > indexes);
	error = catalog_collect(u.remote, &how, &totals, &message);
	ck_assert_msg(!error, "gc: %d: %s", error, message ? message : "");
}

/* As a machine that has nothing of it sees it. */
static void assert_whole(uint64_t number, size_t len)
{
	struct epoch_info info;

	ck_assert(mu_has_epoch(number));
	mu_go_to(1);
	info = eu_info(number);
	ck_assert(info.complete);
	ck_assert_ptr_null(info.record.reason);
	ck_assert_uint_eq(info.record.files, 2);
	epoch_info_free(&info);
	unit_ok(mu_read_noise("file", len, 1));
	eu_live_holds("first", FIRST);
}

/* A pack is too large for the remote, which no layer below tries again. */
static void limit_packs(bool limited)
{
	struct rlimit limit;

	ck_assert_ptr_ne(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = limited ? 16 * MIB : limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* While what is condemned is fetched and stored again, the remote fails: it tells nothing of the file, nor of any other. */
START_TEST(a_failure_of_the_remote_takes_no_file_out)
{
	save_condemned(LARGE);
	limit_packs(true);
	ck_assert_uint_eq(eu_seal(), 2);
	unit_until(tells("error"));
	ck_assert(!mu_has_epoch(2));
	limit_packs(false);
	mu_drain();
	assert_whole(2, LARGE);
}
END_TEST

/* What is not there any more is stored from the cache. */
START_TEST(what_is_gone_is_stored_again)
{
	struct packs before = packs_now(), after;

	save_condemned(SMALL);
	after = packs_now();
	ck_assert_uint_gt(after.count, before.count);
	for (size_t i = 0; i < after.count; i++) {
		bool old = false;

		for (size_t k = 0; k < before.count; k++)
			old |= strcmp(before.keys[k], after.keys[i]) == 0;
		if (!old)
			unit_ok(remote_delete(mu_remote, after.keys[i]));
	}
	ck_assert_uint_eq(mu_count(PREFIX_PACKS), before.count);
	ck_assert_uint_eq(eu_seal(), 2);
	mu_drain();
	assert_whole(2, SMALL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("upload_ahead");
	TCase *t = unit_case(s, "ahead");

	tcase_add_checked_fixture(t, start, mu_stop);
	tcase_add_test(t, a_failure_of_the_remote_takes_no_file_out);
	tcase_add_test(t, what_is_gone_is_stored_again);
	return unit_run(s);
}
