/* SPDX-License-Identifier: Apache-2.0 */
/* A volume opened more than once: one writer, who is heard from another, and readers that follow it. */
#include <stdatomic.h>
#include "lib/epochs/holder.h"
#include "lib/cache/uploads.h"
#include "lib/epochs/epochs.h"
#include "lib/live/handle.h"
#include "tests/unit/volume_unit.h"

#define LIMIT (50 * NS_PER_S)

static struct vu writer, reader;

static int open_as(struct vu *u, bool read_only, bool take_over)
{
	struct volume_options o;
	char *message = NULL;
	int error;

	if (!u->cache) {
		u->cache = unit_dir();
		u->remote = strdup("memory:followed");
	}
	vu_options(u, &o);
	o.read_only = read_only;
	o.take_over = take_over;
	o.refresh_ns = REFRESH_MIN_NS;
	o.lease_ns = LEASE_MIN_NS;
	error = volume_open(&o, &u->vol, &message);
	if (error == -EBUSY)
		ck_assert_msg(message && strstr(message, "held for writing by"), "%s", message);
	free(message);
	return error;
}

static uint64_t put(struct vu *u, const char *name, const char *text)
{
	uint64_t number;

	vu_save(u, name, text);
	number = vu_seal(u);
	unit_ok(epochs_wait(u->vol, number, LIMIT, NULL, NULL));
	return number;
}

static void follows(struct vu *u, uint64_t number)
{
	int64_t deadline = clock_mono_ns() + LIMIT;

	while (epochs_current(u->vol) != number) {
		ck_assert_msg(clock_mono_ns() < deadline, "epoch %d does not come", (int)number);
		usleep(1000);
	}
}

static void start(void)
{
	unit_ok(open_as(&writer, false, false));
	ck_assert_uint_eq(put(&writer, "f", "one"), 1);
	unit_ok(open_as(&reader, true, false));
}

static void stop(void)
{
	vu_stop(&reader);
	vu_stop(&writer);
}

struct heard {
	atomic_int names, files, dropped;
};

static void on_entry(void *arg, uint64_t parent, const char *name)
{
	struct heard *t = arg;

	ck_assert_uint_eq(parent, ROOT_INO);
	ck_assert_uint_gt(strlen(name), 0);
	t->names++;
}

static void on_file(void *arg, uint64_t ino)
{
	struct heard *t = arg;

	ck_assert_uint_gt(ino, 0);
	t->files++;
}

static void on_dropped(void *arg, uint64_t number)
{
	struct heard *t = arg;

	ck_assert_uint_eq(number, 1);
	t->dropped++;
}

START_TEST(a_reader_is_told_what_changes)
{
	struct heard heard = {0};
	const struct volume_events events = {
		.arg = &heard,
		.entry_changed = on_entry,
		.file_changed = on_file,
		.epoch_dropped = on_dropped,
	};
	const struct volume_events none = {0};
	struct handle *old;
	uint64_t number;

	start();
	volume_set_events(reader.vol, &events);
	old = vu_open(&reader, "f", O_RDONLY);
	ck_assert_uint_eq(put(&writer, "f", "another"), 2);
	ck_assert_uint_eq(put(&writer, "g", "new"), 3);
	unit_ok(epochs_tag(writer.vol, "best", 2, false));
	unit_ok(epochs_drop(writer.vol, 1));
	follows(&reader, 3);
	vu_holds(&reader, "f", "another");
	vu_holds(&reader, "g", "new");
	vu_handle_holds(old, "one");
	for (int64_t end = clock_mono_ns() + LIMIT;
	     !heard.dropped || epochs_tag_get(reader.vol, "best", &number);) {
		ck_assert_int_lt(clock_mono_ns(), end);
		usleep(1000);
	}
	ck_assert_uint_eq(number, 2);
	ck_assert_int_ge(heard.names, 1);
	ck_assert_int_ge(heard.files, 1);
	ck_assert_int_eq(heard.dropped, 1);
	unit_error(epochs_sealed_ns(reader.vol, 1, &(int64_t){0}), -ENOENT);
	/* From here on nobody is heard. */
	volume_set_events(reader.vol, &none);
	vu_handle_holds(old, "one");
	handle_release(old, false);
	stop();
}
END_TEST

static atomic_bool done;

static void *read_on(void *arg)
{
	(void)arg;
	while (!done) {
		struct handle *h = NULL;
		char data[8];
		ssize_t n;

		/* Replaced between the look and the opening: looked up again, as the kernel does. */
		if (vu_open_as(&reader, "f", O_RDONLY, 1, &h))
			continue;
		n = handle_read(h, data, sizeof(data), 0, NULL, NULL);
		ck_assert_int_eq(n, (ssize_t)sizeof(data));
		for (int i = 1; i < (int)sizeof(data); i++)
			ck_assert_int_eq(data[i], data[0]);
		handle_release(h, false);
	}
	return NULL;
}

START_TEST(what_is_read_meanwhile_is_whole)
{
	pthread_t threads[4];

	start();
	put(&writer, "f", "00000000");
	follows(&reader, 2);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_on, NULL), 0);
	for (uint64_t number = 3; number < 12; number++) {
		char text[9] = "";

		memset(text, 'a' + (int)number, 8);
		ck_assert_uint_eq(put(&writer, "f", text), number);
		if (number % 3 == 0)
			follows(&reader, number);
	}
	follows(&reader, 11);
	done = true;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	vu_holds(&reader, "f", "llllllll");
	stop();
}
END_TEST

START_TEST(a_second_writer_is_refused_until_it_takes_over)
{
	struct vu second = {0};

	start();
	unit_error(open_as(&second, false, false), -EBUSY);
	unit_ok(open_as(&second, false, true));
	vu_save(&writer, "f", "mine");
	ck_assert_uint_eq(vu_seal(&writer), 2);
	/* It does not wait for what never comes. */
	unit_error(epochs_wait(writer.vol, 2, LIMIT, NULL, NULL), -EBUSY);
	ck_assert(holder_lost(writer.vol) && uploads_gave_up(writer.vol));
	vu_holds(&writer, "f", "mine");
	vu_holds(&second, "f", "one");
	ck_assert_uint_eq(put(&second, "f", "theirs"), 2);
	follows(&reader, 2);
	vu_holds(&reader, "f", "theirs");
	vu_stop(&second);
	stop();
}
END_TEST

START_TEST(a_cache_with_work_of_its_own_keeps_it)
{
	struct vu second = {0};

	start();
	unit_ok(open_as(&second, false, true));
	vu_save(&writer, "f", "mine");
	vu_seal(&writer);
	unit_error(epochs_wait(writer.vol, 2, LIMIT, NULL, NULL), -EBUSY);
	volume_close(writer.vol);
	unit_ok(open_as(&writer, true, false));
	put(&second, "f", "theirs");
	put(&second, "f", "theirs too");
	for (int64_t end = clock_mono_ns() + LIMIT, ns; epochs_sealed_ns(writer.vol, 3, &ns);) {
		ck_assert_int_lt(clock_mono_ns(), end);
		usleep(1000);
	}
	ck_assert_uint_eq(epochs_current(writer.vol), 2);
	vu_holds(&writer, "f", "mine");
	vu_stop(&second);
	stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_follow");
	TCase *t = unit_case(s, "follow");

	tcase_add_test(t, a_reader_is_told_what_changes);
	tcase_add_test(t, what_is_read_meanwhile_is_whole);
	tcase_add_test(t, a_second_writer_is_refused_until_it_takes_over);
	tcase_add_test(t, a_cache_with_work_of_its_own_keeps_it);
	return unit_run(s);
}
