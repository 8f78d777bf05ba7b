/* SPDX-License-Identifier: Apache-2.0 */
/* Who is blamed for a disk without room, and who is not: fstatfs of the whole program, the library included, says what is free. */
#include "tests/unit/handle_unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include "lib/live/handle.h"
#include "lib/live/live.h"
#include "lib/state/reserve.h"
#include "lib/live/cramped.h"
#include "lib/cache/torn.h"

#define MIB	  (UINT64_C(1) << 20)
#define PLENTY	  (1000 * 1024 * MIB) /* the thread looks in five seconds at the earliest */
#define BLOCK	  4096
#define DISK	  (4 * PLENTY / BLOCK)
#define EXT4_OWN  (4096 * UINT64_C(4096))
#define SOME_TYPE 0x01021994

static atomic_uint_least64_t available = PLENTY, for_root;
static atomic_long type = SOME_TYPE;
static atomic_uint looks;

int fstatfs(int fd, struct statfs *st)
{
	if (syscall(SYS_fstatfs, fd, st) < 0)
		return -1;
	looks++;
	st->f_type = type;
	st->f_bsize = BLOCK;
	st->f_blocks = DISK;
	st->f_bavail = available / BLOCK;
	st->f_bfree = st->f_bavail + for_root / BLOCK;
	return 0;
}

/* A replacement of `name` that the kernel writes; all later looks are the test's own. */
static struct handle *begin(const char *name, struct vu_grant *ret_grant)
{
	struct handle *h = vu_open(&u, name, O_WRONLY | O_CREAT | O_TRUNC);

	*ret_grant = vu_grant(h);
	return h;
}

/* The old content is to be replaced. */
static struct handle *begin_half(struct vu_grant *ret_grant)
{
	struct handle *h;

	vu_save(&u, "a", "old");
	h = begin("a", ret_grant);
	vu_write(h, "half", 0);
	return h;
}

static void end(struct handle *h, const struct vu_grant *g, int error)
{
	unit_error(handle_flush(h, getpid(), NULL, NULL), error);
	vu_give_back(&u, g);
	handle_release(h, true);
}

static void full_for_a_moment(void)
{
	available = 0;
	cramped_look(u.vol);
	available = PLENTY;
}

/* Later than any write up to now, for files' clocks, too. */
static void look_after_a_tick(void)
{
	int64_t now = clock_mono_ns();

	unit_until(clock_mono_ns() - now > 50 * NS_PER_MS);
	cramped_look(u.vol);
}

START_TEST(room_that_comes_before_the_close_hides_nothing)
{
	struct vu_grant g;
	struct handle *h = begin_half(&g);

	full_for_a_moment();
	cramped_look(u.vol);
	end(h, &g, -ENOSPC);
	vu_holds(&u, "a", "old");
	/* The next save is another. */
	h = begin("a", &g);
	vu_write(h, "new", 0);
	end(h, &g, 0);
	vu_holds(&u, "a", "new");
}
END_TEST

static bool is_cramped(struct handle *h)
{
	SCOPED_LOCK(&u.vol->lock);
	return h->body->cramped;
}

START_TEST(the_thread_looks_the_oftener_the_less_is_free)
{
	struct vu_grant g;
	struct handle *h;

	vu_save(&u, "a", "old");
	available = 64 * MIB;
	h = begin("a", &g);
	vu_write(h, "half", 0);
	/* Every five seconds it would be too late. */
	looks = 0;
	unit_until(looks > 20);
	available = 0;
	vu_write(h, "more", 4);
	unit_until(is_cramped(h));
	available = PLENTY;
	end(h, &g, -ENOSPC);
	vu_holds(&u, "a", "old");
}
END_TEST

/* ---- before epochfs frees space ---- */

static void remove_object(void)
{
	unit_ok(object_remove(u.vol, UINT64_MAX));
}

static void drop_torn(void)
{
	ck_assert_uint_ge(torn_reclaim(u.vol, 1), 1);
}

static void truncate_another(void)
{
	struct live_change change = {.set = LIVE_SET_SIZE};
	struct state_file f = vu_file(&u, "b");

	unit_ok(body_truncate(u.vol, f.ino, f.body, &change));
}

static void use_the_reserve(void)
{
	/* Its write found no space. */
	available = PLENTY;
	reserve_give(state_reserve(u.vol->state), 1);
}

static void (*const frees[])(void) = {remove_object, drop_torn, truncate_another, use_the_reserve};

START_TEST(room_that_is_made_here_hides_nothing)
{
	struct vu_grant g;
	struct handle *h;

	vu_save(&u, "a", "old");
	vu_save(&u, "b", "another");
	h = begin("t", &g);
	vu_write(h, "torn", 0);
	full_for_a_moment();
	end(h, &g, -ENOSPC);
	vu_missing(&u, "t");
	look_after_a_tick();
	h = begin("a", &g);
	vu_write(h, "half", 0);
	available = 0;
	frees[_i]();
	available = PLENTY;
	end(h, &g, -ENOSPC);
	vu_holds(&u, "a", "old");
}
END_TEST

/* ---- who was refused nothing ---- */

START_TEST(what_was_written_before_the_disk_became_full_is_whole)
{
	struct vu_grant g;
	struct handle *h;

	vu_save(&u, "a", "old");
	h = begin("a", &g);
	vu_write(h, "whole", 0);
	look_after_a_tick();
	full_for_a_moment();
	if (_i)
		available = 0;
	end(h, &g, 0);
	vu_holds(&u, "a", "whole");
	available = PLENTY;
}
END_TEST

START_TEST(what_is_cut_to_nothing_begins_anew)
{
	struct vu_grant g;
	struct handle *h = begin_half(&g);

	available = 0;
	if (_i)
		cramped_look(u.vol);
	unit_ok(handle_truncate(h, 0, NULL, NULL));
	available = PLENTY;
	vu_write(h, "whole", 0);
	end(h, &g, 0);
	vu_holds(&u, "a", "whole");
}
END_TEST

/* Between the look of a truncation and that itself: what was refused then is in it no more either. */
START_TEST(what_is_cut_to_nothing_while_space_is_made_begins_anew)
{
	struct vu_grant g;
	struct handle *h = begin_half(&g);

	available = 0;
	if (_i)
		use_the_reserve();
	else
		remove_object();
	available = PLENTY;
	mutex_lock(&u.vol->lock);
	ck_assert_int_eq(ftruncate(h->body->write_fd, 0), 0);
	body_note_truncated_locked(h->body, 0);
	mutex_unlock(&u.vol->lock);
	vu_write(h, "whole", 0);
	end(h, &g, 0);
	vu_holds(&u, "a", "whole");
}
END_TEST

START_TEST(what_is_begun_after_the_disk_was_full_is_whole)
{
	struct vu_grant g;
	struct handle *h;

	available = 0;
	remove_object();
	available = PLENTY;
	/* Without a truncation, which looks, too. */
	h = vu_open(&u, "a", O_WRONLY | O_CREAT);
	g = vu_grant(h);
	vu_write(h, "whole", 0);
	end(h, &g, 0);
	vu_holds(&u, "a", "whole");
}
END_TEST

START_TEST(a_log_is_never_undone)
{
	struct vu_grant g;
	struct handle *h = vu_open(&u, "train.log", O_WRONLY | O_CREAT | O_APPEND);

	g = vu_grant(h);
	vu_write(h, "a line\n", 0);
	full_for_a_moment();
	ck_assert(!is_cramped(h));
	end(h, &g, 0);
	vu_holds(&u, "train.log", "a line\n");
	ck_assert(!vu_version(&u, vu_file(&u, "train.log").closed).torn);
}
END_TEST

START_TEST(who_writes_through_the_daemon_is_told_by_it)
{
	struct handle *h;

	vu_save(&u, "a", "old");
	h = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	vu_write(h, "whole", 0);
	full_for_a_moment();
	vu_close(h);
	vu_holds(&u, "a", "whole");
}
END_TEST

/* ---- how much is no room ---- */

static const struct {
	long type;
	uint64_t available, for_root;
	bool room;
} rooms[] = {
	{SOME_TYPE, MIB - BLOCK, 0, false},
	{SOME_TYPE, MIB, 0, true},
	{SOME_TYPE, 0, 1024 * MIB, false},
	/* A buffered write there is refused with almost 4 MiB left. */
	{XFS_SUPER_MAGIC, 4 * MIB - BLOCK, 0, false},
	{XFS_SUPER_MAGIC, 5 * MIB, 0, true},
	{EXT4_SUPER_MAGIC, MIB, 0, true},
	/* What it keeps for root this process is given: the disk below has room. */
	{EXT4_SUPER_MAGIC, 0, 1024 * MIB, true},
	{EXT4_SUPER_MAGIC, 0, EXT4_OWN + MIB, true},
	/* The rest is its own. */
	{EXT4_SUPER_MAGIC, 0, EXT4_OWN + MIB - BLOCK, false},
	{EXT4_SUPER_MAGIC, 0, 0, false},
};

/* ext4 has such files; what the test is run on may not. */
static bool can_be_tried(void)
{
	cleanup_close int fd = open(u.cache, O_TMPFILE | O_RDWR, 0600);

	return fd >= 0 && fallocate(fd, 0, 0, BLOCK) == 0;
}

START_TEST(less_than_one_write_takes_is_no_room)
{
	bool room = rooms[_i].room && (!rooms[_i].for_root || can_be_tried());
	struct vu_grant g;
	struct handle *h;

	vu_save(&u, "a", "old");
	h = begin("a", &g);
	vu_write(h, "new", 0);
	type = rooms[_i].type;
	for_root = rooms[_i].for_root;
	available = rooms[_i].available;
	cramped_look(u.vol);
	available = PLENTY;
	end(h, &g, room ? 0 : -ENOSPC);
	vu_holds(&u, "a", room ? "new" : "old");
	type = SOME_TYPE;
	for_root = 0;
}
END_TEST

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

int main(void)
{
	Suite *s = suite_create("live_cramped");
	TCase *t = handle_case(s, "cramped");

	tcase_add_test(t, room_that_comes_before_the_close_hides_nothing);
	tcase_add_test(t, the_thread_looks_the_oftener_the_less_is_free);
	tcase_add_loop_test(t, room_that_is_made_here_hides_nothing, 0, COUNT(frees));
	tcase_add_loop_test(t, what_was_written_before_the_disk_became_full_is_whole, 0, 2);
	tcase_add_loop_test(t, what_is_cut_to_nothing_begins_anew, 0, 2);
	tcase_add_loop_test(t, what_is_cut_to_nothing_while_space_is_made_begins_anew, 0, 2);
	tcase_add_test(t, what_is_begun_after_the_disk_was_full_is_whole);
	tcase_add_test(t, a_log_is_never_undone);
	tcase_add_test(t, who_writes_through_the_daemon_is_told_by_it);
	tcase_add_loop_test(t, less_than_one_write_takes_is_no_room, 0, COUNT(rooms));
	return unit_run(s);
}
