/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing a remote: what comes back from where, what is gone, what is condemned, and a garbage collection that comes between. */
#include "lib/admin/repair.h"

#include "lib/format/gc_list.h"
#include "lib/meta/collection.h"
#include "tests/unit/machines_unit.h"

#define URL "memory:machines"
#define BIG ((size_t)1 << 20)

struct outcomes {
	struct buf lines[REPAIR_NOTE + 1]; /* "KEY|WHERE|WHAT\n" */
	struct repair_totals totals;
	bool interfere; /* a collection publishes while packs are read */
};

static void outcomes_free(struct outcomes *t)
{
	for (size_t i = 0; i <= REPAIR_NOTE; i++)
		buf_free(&t->lines[i]);
}

static void say(void *arg, enum repair_outcome outcome, const char *key, const char *where,
		const char *what)
{
	buf_printf(&((struct outcomes *)arg)->lines[outcome], "%s|%s|%s\n", key, where, what);
}

static void *publish_list(void *unused)
{
	cleanup_gc_list struct gc_list list = {.published_ns = 1};

	if (gc_lists_look(mu_remote, &list) == -ENOENT)
		list = (struct gc_list){.published_ns = 1};
	list.generation++;
	unit_ok(uuid_make(list.run));
	unit_ok(gc_lists_publish(mu_remote, &list));
	return unused;
}

static void on_progress(void *arg, const struct catalog_progress *p)
{
	struct outcomes *t = arg;
	pthread_t other;

	(void)p;
	if (!t->interfere)
		return;
	t->interfere = false;
	/* Who reports progress may hold a lock; somebody else's collection does not. */
	ck_assert(!pthread_create(&other, NULL, publish_list, NULL));
	ck_assert(!pthread_join(other, NULL));
}

static struct outcomes repair_as(const char *cache, bool dry_run, bool interfere)
{
	struct outcomes t = {.interfere = interfere};
	struct repair_how how = {
		.dry_run = dry_run, .say = say, .progress = on_progress, .arg = &t};
	struct volume_options o;
	char *message = NULL;
	int error;

	volume_options_init(&o);
	o.remote = URL;
	o.cache_dir = cache;
	error = repair_remote(&o, &how, &t.totals, &message);
	ck_assert_msg(!error, "repair_remote: %d: %s", error, message ? message : "");
	ck_assert(!t.interfere);
	return t;
}

/* With the cache of the machine that wrote, or with that of one that knows nothing. */
static struct outcomes repair(bool with_cache)
{
	return repair_as(mu_cache[with_cache ? 0 : 2], false, false);
}

static struct catalog_fsck_totals check(void)
{
	struct catalog_fsck how = {.read_data = true};
	struct catalog_fsck_totals totals = {0};
	char *message = NULL;

	unit_ok(catalog_fsck(URL, &how, &totals, &message));
	return totals;
}

static int first_key(void *arg, const char *key, uint64_t size)
{
	(void)size;
	strcpy(arg, key);
	return 1;
}

static void find_key(const char *prefix, char ret_key[REMOTE_KEY_MAX + 1])
{
	ck_assert_int_eq(remote_list(mu_remote, prefix, first_key, ret_key), 1);
}

static void flip(const char *key, uint64_t at)
{
	cleanup_buf struct buf data = {0};

	unit_ok(remote_get(mu_remote, key, 0, REMOTE_TO_END, &data));
	data.data[at < data.len ? at : data.len / 2] ^= 1;
	unit_ok(remote_put(mu_remote, key, data.data, data.len));
}

/* One epoch of one large file, in one pack; the mount is gone, its cache is there. */
static void make_epoch(void)
{
	mu_start();
	mu_save_noise("a", BIG, 1);
	ck_assert_uint_eq(eu_seal(), 1);
	unit_ok(epochs_tag(u.vol, "best", 1, false));
	mu_drain();
	unit_until(mu_in_remote("tags/best"));
	volume_close(u.vol);
	u.vol = NULL;
	ck_assert_uint_eq(check().problems, 0);
}

static void assert_whole(void)
{
	ck_assert_uint_eq(check().problems, 0);
	mu_go_to(1);
	unit_ok(mu_read_noise("a", BIG, 1));
	mu_stop();
}

START_TEST(a_damaged_pack_comes_back_from_the_cache)
{
	CLEANUP(outcomes_free)
	struct outcomes plan = {.interfere = false}, done = plan, again = plan;
	char key[REMOTE_KEY_MAX + 1];

	make_epoch();
	find_key(PREFIX_PACKS, key);
	if (_i == 0)
		flip(key, BIG / 3);
	else if (_i == 1)
		unit_ok(remote_delete(mu_remote, key));
	else
		unit_ok(remote_put(mu_remote, key, "garbage", 7));
	ck_assert_uint_gt(check().problems, 0);
	plan = repair_as(mu_cache[0], true, false);
	ck_assert_uint_gt(plan.totals.restored, 0);
	ck_assert_uint_eq(plan.totals.gone, 0);
	ck_assert_uint_gt(check().problems, 0);
	done = repair(true);
	ck_assert_str_eq(buf_str(&done.lines[REPAIR_GONE]), "");
	ck_assert_uint_eq(done.totals.restored, plan.totals.restored);
	ck_assert_uint_eq(done.totals.condemned, _i != 1);
	/* The new one is another object, also where it holds the same. */
	ck_assert_uint_eq(mu_count(PREFIX_PACKS), _i == 1 ? 1 : 2);
	again = repair(true);
	ck_assert_uint_eq(again.totals.restored + again.totals.condemned, 0);
	assert_whole();
}
END_TEST

START_TEST(without_a_copy_it_is_named_and_condemned_but_not_deleted)
{
	CLEANUP(outcomes_free) struct outcomes done = {.interfere = false};
	char key[REMOTE_KEY_MAX + 1];

	make_epoch();
	find_key(PREFIX_PACKS, key);
	flip(key, BIG / 3);
	done = repair(false);
	ck_assert_ptr_nonnull(strstr(buf_str(&done.lines[REPAIR_GONE]), "epoch 1: a|"));
	ck_assert_uint_eq(done.totals.gone_epoch_count, 1);
	ck_assert_uint_eq(done.totals.gone_epochs[0], 1);
	ck_assert(mu_in_remote(key));
	ck_assert_uint_gt(check().problems, 0);
	outcomes_free(&done);
	/* Later, the machine that has it is there. */
	done = repair(true);
	ck_assert_uint_eq(done.totals.gone, 0);
	assert_whole();
}
END_TEST

START_TEST(an_index_object_comes_back_from_the_tables_of_packs)
{
	CLEANUP(outcomes_free) struct outcomes done = {.interfere = false};
	char key[REMOTE_KEY_MAX + 1];

	make_epoch();
	find_key(PREFIX_INDEX, key);
	if (_i)
		unit_ok(remote_delete(mu_remote, key));
	else
		flip(key, 50);
	done = repair(false);
	ck_assert_uint_eq(done.totals.gone, 0);
	ck_assert_uint_eq(done.totals.restored, 1);
	ck_assert_uint_eq(done.totals.condemned, !_i);
	ck_assert_uint_eq(mu_count(PREFIX_PACKS), 1);
	assert_whole();
}
END_TEST

/* It publishes its list first: what we would condemn is judged again. */
START_TEST(a_collection_that_comes_between_is_no_matter)
{
	CLEANUP(outcomes_free) struct outcomes done = {.interfere = false};
	char key[REMOTE_KEY_MAX + 1];

	make_epoch();
	find_key(PREFIX_PACKS, key);
	flip(key, BIG / 3);
	done = repair_as(mu_cache[0], false, true);
	ck_assert_uint_eq(done.totals.gone, 0);
	ck_assert_uint_eq(done.totals.condemned, 1);
	assert_whole();
}
END_TEST

START_TEST(a_damaged_list_of_condemned_objects_gives_way_to_a_new_one)
{
	CLEANUP(outcomes_free) struct outcomes done = {.interfere = false};
	char key[REMOTE_KEY_MAX + 1];

	make_epoch();
	publish_list(NULL);
	find_key(PREFIX_GC, key);
	unit_ok(remote_put(mu_remote, key, "{", 1));
	done = repair(true);
	ck_assert_uint_eq(done.totals.gone, 0);
	ck_assert_uint_eq(mu_count(PREFIX_GC), 2);
	mu_go_to(1);
	eu_save("b", "it goes on");
	eu_seal();
	mu_drain();
	mu_stop();
}
END_TEST

START_TEST(records_and_tags_come_back_from_the_local_state)
{
	static const char *const damaged[] = {"", "{", "{\"format\":1,\"epoch\":1}\n"};
	static const char *const keys[] = {"tags/best", "epochs/00000000000000000001.json"};

	make_epoch();
	for (size_t i = 0; i < 2 * 3; i++) {
		CLEANUP(outcomes_free) struct outcomes done = {.interfere = false};
		cleanup_buf struct buf before = {0}, after = {0};
		const char *bad = damaged[i % 3], *key = keys[i / 3];

		unit_ok(remote_get(mu_remote, key, 0, REMOTE_TO_END, &before));
		unit_ok(remote_put(mu_remote, key, bad, strlen(bad)));
		done = repair(true);
		ck_assert_uint_eq(done.totals.restored, 1);
		ck_assert_uint_eq(done.totals.gone, 0);
		unit_ok(remote_get(mu_remote, key, 0, REMOTE_TO_END, &after));
		ck_assert_str_eq(buf_str(&before), buf_str(&after));
	}
	assert_whole();
}
END_TEST

/* A bit flip may leave a record that can be read. */
START_TEST(an_altered_record_is_set_right)
{
	CLEANUP(outcomes_free) struct outcomes done = {.interfere = false};
	cleanup_buf struct buf text = {0};
	char *at;

	make_epoch();
	unit_ok(remote_get(mu_remote, "epochs/00000000000000000001.json", 0, REMOTE_TO_END, &text));
	at = strstr(buf_str(&text), "\"hash\"");
	at = strchr(at + 6, '"') + 1;
	*at = *at == '0' ? '1' : '0';
	unit_ok(remote_put(mu_remote, "epochs/00000000000000000001.json", text.data, text.len));
	done = repair(true);
	ck_assert_uint_eq(done.totals.restored, 1);
	assert_whole();
}
END_TEST

START_TEST(what_only_a_tag_knew_is_gone)
{
	CLEANUP(outcomes_free) struct outcomes done = {.interfere = false};

	make_epoch();
	unit_ok(remote_put(mu_remote, "tags/best", "x", 1));
	done = repair(false);
	ck_assert_uint_eq(done.totals.gone, 1);
	ck_assert(!mu_in_remote("tags/best"));
	assert_whole();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("admin_repair");
	TCase *t = unit_case(s, "contents");

	tcase_add_loop_test(t, a_damaged_pack_comes_back_from_the_cache, 0, 3);
	tcase_add_test(t, without_a_copy_it_is_named_and_condemned_but_not_deleted);
	tcase_add_loop_test(t, an_index_object_comes_back_from_the_tables_of_packs, 0, 2);
	t = unit_case(s, "condemning");
	tcase_add_test(t, a_collection_that_comes_between_is_no_matter);
	tcase_add_test(t, a_damaged_list_of_condemned_objects_gives_way_to_a_new_one);
	t = unit_case(s, "names");
	tcase_add_test(t, records_and_tags_come_back_from_the_local_state);
	tcase_add_test(t, an_altered_record_is_set_right);
	tcase_add_test(t, what_only_a_tag_knew_is_gone);
	return unit_run(s);
}
