/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery after a power loss: content that the disk lost is told from content that it kept. */
#include "tests/unit/recover_unit.h"

static void lose_power(void)
{
	mutex_lock(&u.vol->lock);
	unit_ok(state_set_meta(u.vol->state, "boot_id", "of an earlier boot"));
	mutex_unlock(&u.vol->lock);
}

static void cut_object(uint64_t version, off_t size)
{
	cleanup_close int fd = object_open(u.vol, version, O_RDWR);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size), 0);
}

START_TEST(content_that_power_took_is_torn)
{
	uint64_t a, b;

	vu_mount(&u);
	vu_save(&u, "a", "sixteen bytes ok");
	vu_save(&u, "b", "sixteen bytes ok");
	a = vu_file(&u, "a").closed;
	b = vu_file(&u, "b").closed;
	lose_power();
	cut_object(a, 4);
	vu_remount(&u);
	ck_assert(vu_version(&u, a).torn);
	ck_assert(!vu_version(&u, b).torn);
	ck_assert_uint_eq(vu_version(&u, a).size, 16);
	sound();
	vu_holds(&u, "b", "sixteen bytes ok");
	ck_assert(!next_epoch_is_complete());
}
END_TEST

/* The size and the time of a replacement reach the disk before its bytes; its close was promised. Blocks that are there may be `unwritten`. */
static void replace_and_lose_bytes(bool synced, bool unwritten)
{
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	static char data[1 << 20];
	cleanup_close int fd = -1;
	struct state_version v;
	struct stat st;

	memset(data, 'x', sizeof(data));
	ck_assert_int_eq(handle_write(h, data, sizeof(data), 0, NULL, NULL), sizeof(data));
	if (synced)
		unit_ok(handle_fsync(h, false));
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	unit_ok(state_version_get(u.vol->state, h->body->version, &v));
	fd = object_open(u.vol, v.id, O_RDWR);
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof(data)),
			 0);
	if (unwritten)
		ck_assert_int_eq(fallocate(fd, 0, 0, sizeof(data)), 0);
	ck_assert_int_eq(fsync(fd), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	v.flushed_ctime_ns = stat_ctime(&st);
	mutex_lock(&u.vol->lock);
	unit_ok(state_begin(u.vol->state));
	unit_ok(state_end(u.vol->state, state_version_set(u.vol->state, &v)));
	mutex_unlock(&u.vol->lock);
	lose_power();
}

static void lose_blocks(void)
{
	replace_and_lose_bytes(false, false);
}

static void lose_what_is_in_blocks(void)
{
	replace_and_lose_bytes(false, true);
}

static void lose_nothing_of_what_was_synced(void)
{
	replace_and_lose_bytes(true, true);
}

START_TEST(a_replacement_whose_bytes_power_took_is_undone)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, _i ? lose_what_is_in_blocks : lose_blocks);
	mount_and_check();
	vu_holds(&u, "a", "the old content");
}
END_TEST

/* Space that was taken ahead and never written is no loss. */
START_TEST(a_synced_replacement_with_unwritten_blocks_stays)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, lose_nothing_of_what_was_synced);
	mount_and_check();
	ck_assert_uint_eq(vu_version(&u, vu_file(&u, "a").closed).size, 1 << 20);
	ck_assert(!vu_version(&u, vu_file(&u, "a").closed).torn);
}
END_TEST

START_TEST(a_cut_off_archive_is_torn)
{
	uint64_t a;

	vu_mount(&u);
	vu_save(&u, "a.npz", "PK\003\004 and no directory at its end, though it is long enough");
	a = vu_file(&u, "a.npz").closed;
	vu_remount(&u);
	ck_assert(!vu_version(&u, a).torn);
	lose_power();
	vu_remount(&u);
	ck_assert(vu_version(&u, a).torn);
}
END_TEST

START_TEST(content_without_a_file_is_torn_but_has_its_size)
{
	char data[32];
	struct handle *h;
	uint64_t a;

	vu_mount(&u);
	vu_save(&u, "a", "sixteen bytes ok");
	a = vu_file(&u, "a").closed;
	unit_ok(object_remove(u.vol, a));
	vu_remount(&u);
	ck_assert(vu_version(&u, a).torn);
	h = vu_open(&u, "a", O_RDONLY);
	ck_assert_int_eq(handle_read(h, data, sizeof(data), 0, NULL, NULL), 16);
	handle_release(h, false);
	sound();
}
END_TEST

START_TEST(synced_content_is_marked_so)
{
	struct handle *h;

	vu_mount(&u);
	h = vu_open(&u, "a", O_RDWR | O_CREAT);
	vu_write(h, "safe", 0);
	unit_ok(handle_fsync(h, false));
	vu_close(h);
	ck_assert(vu_version(&u, vu_file(&u, "a").closed).fsynced);
	h = vu_open(&u, "b", O_RDWR | O_CREAT);
	vu_write(h, "safe", 0);
	unit_ok(handle_fsync(h, false));
	vu_write(h, "not safe any more", 4);
	vu_close(h);
	ck_assert(!vu_version(&u, vu_file(&u, "b").closed).fsynced);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume_recover_power");
	TCase *t = recover_case(s, "power loss");

	tcase_add_test(t, content_that_power_took_is_torn);
	tcase_add_loop_test(t, a_replacement_whose_bytes_power_took_is_undone, 0, 2);
	tcase_add_test(t, a_synced_replacement_with_unwritten_blocks_stays);
	tcase_add_test(t, a_cut_off_archive_is_torn);
	tcase_add_test(t, content_without_a_file_is_torn_but_has_its_size);
	tcase_add_test(t, synced_content_is_marked_so);
	return unit_run(s);
}
