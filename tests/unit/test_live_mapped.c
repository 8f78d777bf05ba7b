/* SPDX-License-Identifier: Apache-2.0 */
/* Writable mappings that outlive the close: what is committed, and when. */
#include <sys/mman.h>
#include "lib/live/bodies.h"
#include "lib/cache/content.h"
#include "lib/epochs/epochs.h"
#include "lib/live/handle.h"
#include "lib/live/live.h"
#include "tests/unit/volume_unit.h"

static struct vu u;

static void setup(void)
{
	vu_start(&u);
}

static void teardown(void)
{
	vu_stop(&u);
}

static bool complete(uint64_t number)
{
	struct epoch_info e;
	bool is;

	unit_ok(epochs_get(u.vol, number, &e));
	is = e.complete;
	epoch_info_free(&e);
	return is;
}

/* A process that maps the backing file writable, as the kernel does for one that maps the file of a
 * passthrough open; the mapping goes with it. */
static struct vu_child mapper(uint64_t version)
{
	cleanup_close int fd = object_open(u.vol, version, O_RDWR);
	struct vu_child c = {0};
	int go[2], ready[2];
	char byte;

	ck_assert_int_eq(pipe2(go, O_CLOEXEC) | pipe2(ready, O_CLOEXEC), 0);
	c.pid = fork();
	ck_assert_int_ge(c.pid, 0);
	if (!c.pid) {
		char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		/* Nothing of the volume is kept open, its lock least of all. */
		dup2(go[0], STDIN_FILENO);
		dup2(ready[1], STDOUT_FILENO);
		close_range(STDERR_FILENO + 1, ~0u, 0);
		if (p == MAP_FAILED || write(STDOUT_FILENO, "r", 1) != 1)
			_exit(1);
		if (read(STDIN_FILENO, &byte, 1) == 1) { /* told to write once more */
			p[0] = 'M';
			if (write(STDOUT_FILENO, "w", 1) != 1 || read(STDIN_FILENO, &byte, 1) < 0)
				_exit(1);
		}
		_exit(0);
	}
	close(go[0]);
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	c.go = go[1];
	c.ready = ready[0];
	return c;
}

START_TEST(a_writable_mapping_that_is_left_gets_a_copy_committed)
{
	struct handle *h = vu_open(&u, "a", O_RDWR | O_CREAT);
	uint64_t version = vu_file(&u, "a").live;
	struct vu_child c = {0};
	struct state_file f;
	struct vu_grant g;
	char byte;

	vu_write(h, "mapped", 0);
	g = vu_grant(h);
	c = mapper(version);
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	vu_give_back(&u, &g);
	handle_release(h, true);
	f = vu_file(&u, "a");
	ck_assert_uint_ne(f.closed, 0);
	ck_assert_uint_ne(f.closed, version);
	ck_assert_uint_eq(f.live, version);
	vu_holds(&u, "a", "mapped");
	ck_assert_int_eq(write(c.go, "w", 1), 1);
	ck_assert_int_eq(read(c.ready, &byte, 1), 1);
	vu_holds(&u, "a", "Mapped");
	vu_child_wait(&c);
	unit_until(vu_file(&u, "a").closed == version);
	vu_holds(&u, "a", "Mapped");
	ck_assert(complete(vu_seal(&u)));
}
END_TEST

/* As this process has the file "a" mapped, for whoever looks into /proc. */
static void *map_a(void)
{
	cleanup_free char *dir = unit_dir(), *path = unit_path(dir, "a");
	cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *p;

	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

/* Without passthrough a mapping, whatever it may do, keeps the release away; the close counts nevertheless. */
START_TEST(what_is_closed_and_mapped_is_committed_without_a_release)
{
	struct handle *h = vu_open(&u, "a", O_RDWR | O_CREAT);
	uint64_t version = vu_file(&u, "a").live, copy;
	void *p = map_a();

	vu_write(h, "mapped", 0);
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	unit_ok(bodies_finish_closes(u.vol));
	copy = vu_file(&u, "a").closed;
	ck_assert_uint_ne(copy, 0);
	ck_assert_uint_ne(copy, version);
	ck_assert(complete(vu_seal(&u)));
	/* The mapping stores, and the kernel writes that back. */
	vu_write(h, "M", 0);
	vu_holds(&u, "a", "Mapped");
	unit_ok(bodies_finish_closes(u.vol));
	ck_assert_uint_eq(vu_file(&u, "a").closed, copy);
	munmap(p, 4096);
	handle_release(h, false);
	ck_assert_uint_eq(vu_file(&u, "a").closed, version);
	vu_holds(&u, "a", "Mapped");
	ck_assert(complete(vu_seal(&u)));
}
END_TEST

/* It changed the file while it was mounted, and ended after that: no writer was killed. */
START_TEST(a_writable_mapping_ends_between_two_mounts)
{
	struct handle *h = vu_open(&u, "a", O_RDWR | O_CREAT);
	uint64_t version = vu_file(&u, "a").live;
	struct vu_child c = {0};
	struct vu_grant g;
	char byte;

	vu_write(h, "mapped", 0);
	g = vu_grant(h);
	c = mapper(version);
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	vu_give_back(&u, &g);
	handle_release(h, true);
	ck_assert_int_eq(write(c.go, "w", 1), 1);
	ck_assert_int_eq(read(c.ready, &byte, 1), 1);
	volume_close(u.vol);
	vu_child_wait(&c);
	vu_mount(&u);
	ck_assert_uint_eq(vu_file(&u, "a").closed, version);
	vu_holds(&u, "a", "Mapped");
	ck_assert(complete(vu_seal(&u)));
}
END_TEST

/* What is committed does not change under it, also where the volume is opened again meanwhile. */
START_TEST(a_writable_mapping_outlives_the_mount)
{
	struct handle *h = vu_open(&u, "a", O_RDWR | O_CREAT);
	uint64_t version = vu_file(&u, "a").live, sealed;
	struct vu_child c = {0};
	struct vu_grant g;
	char data[8] = "", byte;
	int fd;

	vu_write(h, "mapped", 0);
	g = vu_grant(h);
	c = mapper(version);
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	vu_give_back(&u, &g);
	handle_release(h, true);
	vu_remount(&u);
	ck_assert_uint_eq(vu_file(&u, "a").live, version);
	sealed = vu_file(&u, "a").closed;
	ck_assert_uint_ne(sealed, version);
	ck_assert(complete(vu_seal(&u)));
	ck_assert_int_eq(write(c.go, "w", 1), 1);
	ck_assert_int_eq(read(c.ready, &byte, 1), 1);
	fd = object_open(u.vol, sealed, O_RDONLY);
	ck_assert_int_eq(pread(fd, data, sizeof(data), 0), 6);
	close(fd);
	ck_assert_str_eq(data, "mapped");
	vu_holds(&u, "a", "Mapped");
	vu_child_wait(&c);
	unit_until(vu_file(&u, "a").closed == version);
	vu_holds(&u, "a", "Mapped");
}
END_TEST

START_TEST(without_a_mapping_a_direct_close_is_committed_at_once)
{
	struct handle *h = vu_open(&u, "a", O_RDWR | O_CREAT);
	uint64_t version = vu_file(&u, "a").live;
	struct vu_grant g = vu_grant(h);

	vu_write(h, "direct", 0);
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	vu_give_back(&u, &g);
	handle_release(h, true);
	ck_assert_uint_eq(vu_file(&u, "a").closed, version);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live_mapped");
	TCase *t = unit_case(s, "mapped");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_writable_mapping_that_is_left_gets_a_copy_committed);
	tcase_add_test(t, what_is_closed_and_mapped_is_committed_without_a_release);
	tcase_add_test(t, a_writable_mapping_ends_between_two_mounts);
	tcase_add_test(t, a_writable_mapping_outlives_the_mount);
	tcase_add_test(t, without_a_mapping_a_direct_close_is_committed_at_once);
	return unit_run(s);
}
