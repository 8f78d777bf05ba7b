/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of -o resume share: saves that are killed, and a live tree that went back. */
#ifndef EPOCHFS_TESTS_RESUME_UNIT_H
#define EPOCHFS_TESTS_RESUME_UNIT_H

#include <jansson.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/admin/control.h"
#include "tests/unit/epochs_unit.h"

__attribute__((unused)) static void prepare(void)
{
	eu_prepare();
	eu_options.resume = RESUME_ALWAYS;
}

__attribute__((unused)) static void start(void)
{
	prepare();
	eu_mount();
}

__attribute__((unused)) static TCase *resume_case(Suite *s, const char *name)
{
	TCase *t = unit_case(s, name);

	tcase_add_checked_fixture(t, start, eu_stop);
	return t;
}

/* A killed process's last descriptor goes. */
__attribute__((unused)) static void kill_writer(struct handle *h)
{
	h->killed = true;
	handle_release(h, false);
}

__attribute__((unused)) static struct handle *begin_save(const char *path)
{
	struct handle *h = eu_open(path, O_WRONLY | O_CREAT | O_TRUNC);

	vu_write(h, "half", 0);
	return h;
}

/* A process that lives until it is told. */
__attribute__((unused)) static pid_t begin_process(void)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		for (;;)
			pause();
	return pid;
}

__attribute__((unused)) static void end_process(pid_t pid)
{
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* By a process that ends then: nobody may go on with that save. */
__attribute__((unused)) static void save_bytes(const char *path, const void *data, size_t len)
{
	pid_t pid = begin_process();

	eu_save_as(path, data, len, pid);
	end_process(pid);
}

__attribute__((unused)) static void save(const char *path, const char *text)
{
	save_bytes(path, text, strlen(text));
}

/* a and b are epoch 1, complete. */
__attribute__((unused)) static void save_both(void)
{
	save("a", "a1");
	save("b", "b1");
	ck_assert_uint_eq(eu_seal(), 1);
}

__attribute__((unused)) static bool is_complete(uint64_t number)
{
	struct epoch_info info = eu_info(number);
	bool complete = info.complete;

	epoch_info_free(&info);
	return complete;
}

/* That epoch has what was there, and the next one what epoch 1 has. */
__attribute__((unused)) static void went_back(uint64_t left, uint64_t to)
{
	struct epoch_info info = eu_info(left + 1);

	ck_assert(!is_complete(left));
	ck_assert(info.complete);
	ck_assert_uint_eq(info.record.restores, to);
	epoch_info_free(&info);
	ck_assert_uint_eq(epochs_current(u.vol), left + 1);
	ck_assert_uint_eq(epochs_latest(u.vol), left + 1);
	eu_live_holds("a", "a1");
	eu_live_holds("b", "b1");
}

__attribute__((unused)) static void went_back_from(uint64_t left)
{
	went_back(left, 1);
}

__attribute__((unused)) static json_t *status(void)
{
	static const char request[] = "{\"op\":\"status\"}";
	cleanup_buf struct buf answer = {0};
	json_t *o;

	unit_ok(volume_control(u.vol, request, strlen(request), NULL, NULL, &answer));
	o = json_loads(buf_str(&answer), 0, NULL);
	ck_assert_ptr_nonnull(o);
	return o;
}

#endif
