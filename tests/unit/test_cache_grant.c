/* SPDX-License-Identifier: Apache-2.0 */
/* Whose a backing file is: each event in each state of grant.h, with a mapping left and without. */
#include "tests/unit/volume_unit.h"

#include <errno.h>
#include <sys/mman.h>
#include "lib/cache/content.h"
#include "lib/epochs/epochs.h"
#include "lib/cache/grant.h"
#include "lib/live/handle.h"

static struct vu u;

#define OWN   100
#define OTHER 200

static void set_up(void)
{
	vu_start(&u);
}

static void tear_down(void)
{
	vu_stop(&u);
}

enum standing {
	FREE,
	OWN_OPEN,
	OWN_LEFT,
	OWN_MAPPED,
	OTHER_OPEN,
	OTHER_LEFT,
	OTHER_MAPPED,
	STATES
};

/* A closed version in one of the states, and what holds it there. */
struct setting {
	uint64_t version;
	struct grant *grant;
	void *map;
};

static void *map_object(uint64_t version)
{
	int fd = object_open(u.vol, version, O_RDONLY);
	void *map = mmap(NULL, 4, PROT_READ, MAP_SHARED, fd, 0);

	ck_assert(map != MAP_FAILED);
	close(fd);
	return map;
}

static struct setting set(enum standing state)
{
	static int count;
	struct setting s = {0};
	char name[16];

	snprintf(name, sizeof(name), "f%d", count++);
	vu_save(&u, name, "text");
	s.version = vu_file(&u, name).closed;
	ck_assert_uint_ne(s.version, 0); /* where its commit failed */
	if (state == FREE)
		return s;
	SCOPED_LOCK(&u.vol->lock);
	unit_ok(grant_take_locked(u.vol, s.version, state < OTHER_OPEN ? OWN : OTHER, &s.grant));
	if (state == OWN_MAPPED || state == OTHER_MAPPED)
		s.map = map_object(s.version);
	return s;
}

/* LEFT begins with the release, which takes the lock. */
static struct setting set_whole(enum standing state)
{
	struct setting s = set(state);

	if (state != FREE && state != OWN_OPEN && state != OTHER_OPEN) {
		grant_release(u.vol, s.grant);
		s.grant = NULL;
	}
	return s;
}

static void end(struct setting *s)
{
	grant_release(u.vol, s->grant);
	if (s->map)
		munmap(s->map, 4);
}

START_TEST(take)
{
	static const int expected[STATES] = {[OTHER_OPEN] = -EBUSY, [OTHER_MAPPED] = -EBUSY};
	struct setting s = set_whole((enum standing)_i);
	struct grant *g = NULL;

	mutex_lock(&u.vol->lock);
	unit_error(grant_take_locked(u.vol, s.version, OWN, &g), expected[_i]);
	if (g)
		ck_assert_ptr_eq(grant_find_locked(u.vol, s.version, OWN), g);
	mutex_unlock(&u.vol->lock);
	grant_release(u.vol, g);
	end(&s);
}
END_TEST

START_TEST(use)
{
	static const enum grant_use expected[STATES] = {
		[FREE] = GRANT_FREE,	     [OWN_OPEN] = GRANT_OWN,	 [OWN_LEFT] = GRANT_FREE,
		[OWN_MAPPED] = GRANT_OWN,    [OTHER_OPEN] = GRANT_OTHER, [OTHER_LEFT] = GRANT_FREE,
		[OTHER_MAPPED] = GRANT_OTHER};
	struct setting s = set_whole((enum standing)_i);

	mutex_lock(&u.vol->lock);
	ck_assert_int_eq(grant_use_locked(u.vol, s.version, OWN), expected[_i]);
	mutex_unlock(&u.vol->lock);
	end(&s);
}
END_TEST

START_TEST(move)
{
	static const int expected[STATES] = {
		[OTHER_OPEN] = -EBUSY, [OTHER_LEFT] = -EBUSY, [OTHER_MAPPED] = -EBUSY};
	struct setting s = set_whole((enum standing)_i);
	const uint64_t to = 1u << 30;

	mutex_lock(&u.vol->lock);
	unit_error(grant_move_locked(u.vol, s.version, to, OWN), expected[_i]);
	if (_i == OWN_OPEN || _i == OWN_MAPPED)
		ck_assert_ptr_nonnull(grant_find_locked(u.vol, to, OWN));
	if (!expected[_i])
		ck_assert_int_eq(grant_use_locked(u.vol, s.version, OWN), GRANT_FREE);
	else
		ck_assert_ptr_nonnull(grant_find_locked(u.vol, s.version, OTHER));
	mutex_unlock(&u.vol->lock);
	end(&s);
}
END_TEST

/* Once more after a step behind it failed: the grant went along the first time. */
START_TEST(a_move_may_be_repeated)
{
	struct setting s = set_whole(OWN_OPEN);

	mutex_lock(&u.vol->lock);
	for (int i = 0; i < 2; i++)
		unit_ok(grant_move_locked(u.vol, s.version, 1u << 30, OWN));
	ck_assert_ptr_eq(grant_find_locked(u.vol, 1u << 30, OWN), s.grant);
	mutex_unlock(&u.vol->lock);
	end(&s);
}
END_TEST

START_TEST(drop)
{
	struct setting s = set_whole((enum standing)_i);

	mutex_lock(&u.vol->lock);
	grant_drop_locked(u.vol, s.version);
	ck_assert_int_eq(grant_use_locked(u.vol, s.version, OWN), GRANT_FREE);
	mutex_unlock(&u.vol->lock);
	end(&s);
}
END_TEST

START_TEST(evict)
{
	static const bool expected[STATES] = {
		[FREE] = true, [OWN_LEFT] = true, [OTHER_LEFT] = true};
	struct setting s = set_whole((enum standing)_i);

	mutex_lock(&u.vol->lock);
	ck_assert_int_eq(grant_may_evict_locked(u.vol, s.version), expected[_i]);
	mutex_unlock(&u.vol->lock);
	end(&s);
}
END_TEST

static void sweep(void)
{
	for (size_t at = 0; (at = grants_sweep_locked(u.vol, at));)
		;
}

START_TEST(a_mapping_that_ends_frees_the_file)
{
	struct setting s = set_whole(OTHER_MAPPED);

	mutex_lock(&u.vol->lock);
	sweep();
	ck_assert_int_eq(grant_use_locked(u.vol, s.version, OWN), GRANT_OTHER);
	munmap(s.map, 4);
	s.map = NULL;
	sweep();
	ck_assert_ptr_null(grant_find_locked(u.vol, s.version, OTHER));
	mutex_unlock(&u.vol->lock);
	end(&s);
}
END_TEST

/* The table is of one process; what an earlier one granted may be mapped still. */
START_TEST(a_mapping_that_an_earlier_mount_left_is_anothers)
{
	struct grant *g = NULL;
	uint64_t version;
	void *map;

	vu_save(&u, "a", "text");
	version = vu_file(&u, "a").closed;
	map = map_object(version);
	vu_remount(&u);
	mutex_lock(&u.vol->lock);
	ck_assert_int_eq(grant_use_locked(u.vol, version, OWN), GRANT_OTHER);
	unit_error(grant_take_locked(u.vol, version, OWN, &g), -EBUSY);
	ck_assert(!grant_may_evict_locked(u.vol, version));
	munmap(map, 4);
	ck_assert_int_eq(grant_use_locked(u.vol, version, OWN), GRANT_FREE);
	ck_assert(grant_may_evict_locked(u.vol, version));
	unit_ok(grant_take_locked(u.vol, version, OWN, &g));
	mutex_unlock(&u.vol->lock);
	grant_release(u.vol, g);
}
END_TEST

/* What looks like one is this process's own: no test for every old file that is opened. */
START_TEST(no_mapping_is_left_by_an_earlier_boot)
{
	uint64_t version;
	void *map;

	vu_save(&u, "a", "text");
	version = vu_file(&u, "a").closed;
	map = map_object(version);
	unit_ok(state_set_meta(u.vol->state, "boot_id", "of an earlier boot"));
	vu_remount(&u);
	mutex_lock(&u.vol->lock);
	ck_assert_int_eq(grant_use_locked(u.vol, version, OWN), GRANT_FREE);
	mutex_unlock(&u.vol->lock);
	munmap(map, 4);
}
END_TEST

/* The kernel has the file: the test would find it. */
START_TEST(a_grant_of_before_is_taken_again_without_a_test)
{
	struct grant *g = NULL, *no = NULL;
	uint64_t version;
	void *map;

	vu_save(&u, "a", "text");
	version = vu_file(&u, "a").closed;
	map = map_object(version);
	vu_remount(&u);
	mutex_lock(&u.vol->lock);
	unit_ok(grant_take_again_locked(u.vol, version, OWN, &g));
	unit_error(grant_take_again_locked(u.vol, version, OTHER, &no), -EBUSY);
	ck_assert_int_eq(grant_use_locked(u.vol, version, OWN), GRANT_OWN);
	mutex_unlock(&u.vol->lock);
	grant_release(u.vol, g);
	munmap(map, 4);
}
END_TEST

/* ---- what follows from it for content ---- */

static void version_holds(uint64_t version, const char *text)
{
	char data[32] = "";
	struct content *c;

	unit_ok(content_get(u.vol, version, &c));
	ck_assert_int_eq(content_read(c, data, sizeof(data), 0, NULL, NULL), (ssize_t)strlen(text));
	ck_assert_str_eq(data, text);
	content_put(c);
}

/* Two opens of one node, of which the first ends: the second still has the kernel read it. */
START_TEST(an_edit_stays_in_the_file_that_another_reader_has)
{
	struct handle *first, *second, *h;
	struct vu_grant g;
	char data[16] = "";
	uint64_t sealed;

	vu_save(&u, "a", "one\n");
	sealed = vu_file(&u, "a").closed;
	vu_seal(&u);
	first = vu_open(&u, "a", O_RDONLY);
	g = vu_grant(first);
	second = vu_open(&u, "a", O_RDONLY);
	unit_ok(handle_join_grant(second, NULL, NULL));
	handle_release(first, true);
	h = vu_open(&u, "a", O_WRONLY | O_APPEND);
	unit_ok(handle_join_grant(h, NULL, NULL));
	vu_write(h, "two\n", 4);
	vu_close(h);
	ck_assert_int_eq(pread(g.fd, data, sizeof(data), 0), 8);
	vu_holds(&u, "a", "one\ntwo\n");
	handle_release(second, true);
	vu_give_back(&u, &g);
	vu_holds(&u, "a", "one\ntwo\n");
	version_holds(sealed, "one\n");
}
END_TEST

/* A reader that has closed the file has it mapped: it sees what is changed in place, as on any disk. */
START_TEST(a_mapping_that_is_left_sees_the_edit)
{
	struct handle *reader, *h;
	struct vu_grant g;
	uint64_t sealed;
	char *map;

	vu_save(&u, "a", "one\n");
	sealed = vu_file(&u, "a").closed;
	vu_seal(&u);
	reader = vu_open(&u, "a", O_RDONLY);
	g = vu_grant(reader);
	map = mmap(NULL, 4, PROT_READ, MAP_SHARED, g.fd, 0);
	ck_assert(map != MAP_FAILED);
	vu_give_back(&u, &g);
	handle_release(reader, true);
	h = vu_open(&u, "a", O_WRONLY);
	vu_write(h, "ONE", 0);
	vu_close(h);
	ck_assert_int_eq(memcmp(map, "ONE\n", 4), 0);
	munmap(map, 4);
	version_holds(sealed, "one\n");
}
END_TEST

/* Who mapped a file of an epoch keeps it, also where the live file shows the same version again. */
START_TEST(a_mapping_of_an_epoch_never_changes)
{
	uint64_t version, number;
	struct grant *grant;
	struct content *c;
	struct handle *h;
	char *map;
	int fd;

	vu_save(&u, "a", "one\n");
	version = vu_file(&u, "a").closed;
	vu_seal(&u);
	vu_save(&u, "a", "another\n");
	vu_seal(&u);
	unit_ok(content_get(u.vol, version, &c));
	unit_ok(content_grant(c, &grant, &fd));
	map = mmap(NULL, 4, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert(map != MAP_FAILED);
	close(fd);
	grant_release(u.vol, grant);
	content_put(c);
	unit_ok(epochs_rollback(u.vol, 1, &number));
	ck_assert_uint_eq(vu_file(&u, "a").closed, version);
	h = vu_open(&u, "a", O_RDWR);
	vu_write(h, "ONE", 0);
	vu_close(h);
	ck_assert_int_eq(memcmp(map, "one\n", 4), 0);
	vu_holds(&u, "a", "ONE\n");
	munmap(map, 4);
}
END_TEST

/* After a restart the live file may show what somebody has open in an epoch: it is the epoch's still. */
START_TEST(an_epochs_file_is_granted_again_though_a_live_file_shows_it)
{
	struct grant *grant, *no;
	struct content *c;
	struct handle *h;
	char data[8] = "";
	uint64_t version;
	int fd;

	vu_save(&u, "a", "one\n");
	version = vu_file(&u, "a").closed;
	vu_seal(&u);
	fd = object_open(u.vol, version, O_RDONLY); /* the kernel's */
	ck_assert_int_ge(fd, 0);
	vu_remount(&u);
	unit_ok(content_get(u.vol, version, &c));
	unit_error(content_grant(c, &no, &(int){-1}), -EAGAIN);
	unit_ok(content_grant_again(c, &grant));
	h = vu_open(&u, "a", O_RDONLY);
	unit_error(handle_grant(h, &no, &(int){-1}), -EAGAIN);
	handle_release(h, false);
	h = vu_open(&u, "a", O_RDWR);
	vu_write(h, "ONE", 0);
	vu_close(h);
	ck_assert_int_eq(pread(fd, data, sizeof(data), 0), 4);
	ck_assert_str_eq(data, "one\n");
	vu_holds(&u, "a", "ONE\n");
	close(fd);
	grant_release(u.vol, grant);
	content_put(c);
}
END_TEST

START_TEST(without_memory_for_grants_a_volume_is_refused)
{
	struct volume_options o;
	struct volume *vol = NULL;
	char *message = NULL;
	int error;

	if (!unit_fail_alloc_of || !unit_fail_alloc_of((void *)grants_new))
		unit_skip("this build lets no allocation fail");
	volume_options_init(&o);
	o.remote = "none";
	o.cache_dir = unit_dir();
	error = volume_open(&o, &vol, &message);
	ck_assert(unit_alloc_failed());
	unit_fail_alloc(0);
	unit_error(error, -ENOMEM);
	ck_assert_ptr_nonnull(message);
	free(message);
	free((char *)(uintptr_t)o.cache_dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_grant");
	TCase *t = unit_case(s, "states"), *c = unit_case(s, "content");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, take, 0, STATES);
	tcase_add_loop_test(t, use, 0, STATES);
	tcase_add_loop_test(t, move, 0, STATES);
	tcase_add_test(t, a_move_may_be_repeated);
	tcase_add_loop_test(t, drop, 0, STATES);
	tcase_add_loop_test(t, evict, 0, STATES);
	tcase_add_test(t, without_memory_for_grants_a_volume_is_refused);
	tcase_add_test(t, a_mapping_that_ends_frees_the_file);
	tcase_add_test(t, a_mapping_that_an_earlier_mount_left_is_anothers);
	tcase_add_test(t, no_mapping_is_left_by_an_earlier_boot);
	tcase_add_test(t, a_grant_of_before_is_taken_again_without_a_test);
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, an_edit_stays_in_the_file_that_another_reader_has);
	tcase_add_test(c, a_mapping_that_is_left_sees_the_edit);
	tcase_add_test(c, a_mapping_of_an_epoch_never_changes);
	tcase_add_test(c, an_epochs_file_is_granted_again_though_a_live_file_shows_it);
	return unit_run(s);
}
