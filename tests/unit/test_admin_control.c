/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the command as JSON (lib/admin/control.h). */
#include "lib/admin/control.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include "tests/unit/epochs_unit.h"

static json_t *ask_bytes(const char *request, size_t len)
{
	cleanup_buf struct buf response = {0};
	json_t *json;

	unit_ok(volume_control(u.vol, request, len, NULL, NULL, &response));
	json = json_loadb((const char *)response.data, response.len, 0, NULL);
	ck_assert_msg(json_is_object(json), "%s gives %s", request, buf_str(&response));
	return json;
}

/* The answer; json_decref it. */
static json_t *ask(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static json_t *ask(const char *fmt, ...)
{
	cleanup_free char *request = NULL;
	json_t *answer;
	va_list ap;

	va_start(ap, fmt);
	ck_assert_int_gt(vasprintf(&request, fmt, ap), 0);
	va_end(ap);
	answer = ask_bytes(request, strlen(request));
	ck_assert_msg(!json_object_get(answer, "error"), "%s: %s", request,
		      json_string_value(json_object_get(answer, "error")));
	return answer;
}

static void ask_epoch(uint64_t want, const char *request)
{
	json_t *answer = ask("%s", request);

	ck_assert_int_eq(json_integer_value(json_object_get(answer, "epoch")), (json_int_t)want);
	json_decref(answer);
}

/* It is refused with this errno, in one line that has this text. */
static void refused(const char *request, int error, const char *text)
{
	json_t *answer = ask_bytes(request, strlen(request));
	const char *line = json_string_value(json_object_get(answer, "error"));

	ck_assert_msg(line != NULL, "%s is not refused", request);
	ck_assert_int_eq(json_integer_value(json_object_get(answer, "errno")), error);
	ck_assert_msg(strstr(line, text) != NULL, "%s: %s", request, line);
	ck_assert_ptr_null(strchr(line, '\n'));
	json_decref(answer);
}

START_TEST(commit_and_what_names_epochs)
{
	uint64_t number;

	eu_save("a", "a");
	ask_epoch(1, "{\"op\":\"commit\",\"tag\":\"best\",\"step\":7,\"message\":\"hi\"}");
	ask_epoch(1, "{\"op\":\"commit\"}");
	ask_epoch(1, "{\"op\":\"resolve\",\"epoch\":\"best\"}");
	ask_epoch(1, "{\"op\":\"resolve\",\"epoch\":\"step=7\"}");
	ask_epoch(1, "{\"op\":\"resolve\",\"epoch\":1}");
	eu_save("a", "b");
	ask_epoch(2, "{\"op\":\"seal\"}");
	ask_epoch(2, "{\"op\":\"wait\"}");
	ask_epoch(1, "{\"op\":\"wait\",\"epoch\":\"1\",\"timeout_ms\":0}");
	ask_epoch(3, "{\"op\":\"rollback\",\"epoch\":1}");
	eu_live_holds("a", "a");
	ask_epoch(2, "{\"op\":\"tag\",\"epoch\":2,\"name\":\"x\"}");
	ask_epoch(1, "{\"op\":\"tag\",\"epoch\":1,\"name\":\"x\",\"replace\":true}");
	unit_ok(epochs_tag_get(u.vol, "x", &number));
	ck_assert_uint_eq(number, 1);
	ask_epoch(2, "{\"op\":\"rm\",\"epoch\":2}");
	json_decref(ask("{\"op\":\"untag\",\"name\":\"x\"}"));
	unit_error(epochs_tag_get(u.vol, "x", &number), -ENOENT);
}
END_TEST

START_TEST(refusals_say_what_to_do)
{
	static const char nul[] = "{\"op\":\"status\0\"}";

	eu_save("a", "a");
	eu_seal();
	refused("{\"op\":\"resolve\",\"epoch\":\"9\"}", ENOENT, "epochfs log");
	refused("{\"op\":\"resolve\",\"epoch\":\"a/b\"}", EINVAL, "names no epoch");
	refused("{\"op\":\"resolve\",\"epoch\":-1}", EINVAL, "not a number");
	refused("{\"op\":\"resolve\",\"epoch\":[]}", EINVAL, "not a number");
	refused("{\"op\":\"resolve\"}", EINVAL, "no epoch is given");
	refused("{\"op\":\"rm\",\"epoch\":1}", EBUSY, "current");
	refused("{\"op\":\"tag\",\"epoch\":1,\"name\":\"latest\"}", EINVAL, "cannot be a tag");
	refused("{\"op\":\"tag\",\"epoch\":1}", EINVAL, "no name");
	refused("{\"op\":\"untag\",\"name\":\"x\"}", ENOENT, "no tag x");
	refused("{\"op\":\"untag\"}", EINVAL, "no name");
	refused("{\"op\":\"commit\",\"step\":\"x\"}", EINVAL, "step");
	refused("{\"op\":\"commit\",\"tag\":\"1\"}", EINVAL, "cannot be a tag");
	unit_ok(epochs_tag(u.vol, "best", 1, false));
	refused("{\"op\":\"commit\",\"tag\":\"best\"}", EEXIST, "is taken");
	refused("{\"op\":\"tag\",\"epoch\":1,\"name\":\"best\"}", EEXIST, "is taken");
	refused("{\"op\":\"diff\",\"to\":9}", ENOENT, "9");
	refused("{\"op\":\"explode\"}", EOPNOTSUPP, "unknown");
	refused("{}", EOPNOTSUPP, "unknown");
	refused("[]", EINVAL, "JSON");
	refused("", EINVAL, "JSON");
	refused("{\"op\":\"status\"", EINVAL, "JSON");
	json_decref(ask_bytes(nul, sizeof(nul) - 1));
}
END_TEST

START_TEST(the_log_lists_epochs_with_tags)
{
	const json_t *epochs, *first, *tags;
	json_t *answer;

	eu_save("step-4", "abc");
	eu_seal();
	eu_save("step-5", "abc");
	eu_seal();
	unit_ok(epochs_tag(u.vol, "x", 1, false));
	unit_ok(epochs_tag(u.vol, "y", 1, false));
	answer = ask("{\"op\":\"log\"}");
	epochs = json_object_get(answer, "epochs");
	ck_assert_uint_eq(json_array_size(epochs), 2);
	first = json_array_get(epochs, 0);
	ck_assert_int_eq(json_integer_value(json_object_get(first, "epoch")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(first, "step")), 4);
	ck_assert_int_eq(json_integer_value(json_object_get(first, "bytes")), 3);
	ck_assert_str_eq(json_string_value(json_object_get(first, "state")), "sealed");
	ck_assert(json_is_true(json_object_get(first, "complete")));
	tags = json_object_get(first, "tags");
	ck_assert_uint_eq(json_array_size(tags), 2);
	ck_assert_str_eq(json_string_value(json_array_get(tags, 0)), "x");
	ck_assert_uint_eq(json_array_size(json_object_get(json_array_get(epochs, 1), "tags")), 0);
	json_decref(answer);
	answer = ask("{\"op\":\"tags\"}");
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(answer, "tags"), "y")),
			 1);
	json_decref(answer);
}
END_TEST

START_TEST(show_and_diff)
{
	json_t *answer;

	eu_save("a", "a");
	eu_save("b", "b");
	eu_seal();
	eu_unlink("b");
	eu_save("c", "ccc");
	eu_seal();
	answer = ask("{\"op\":\"show\",\"epoch\":\"latest\"}");
	ck_assert_int_eq(
		json_integer_value(json_object_get(json_object_get(answer, "epoch"), "epoch")), 2);
	ck_assert_uint_eq(json_array_size(json_object_get(answer, "files")), 2);
	json_decref(answer);
	answer = ask("{\"op\":\"diff\",\"to\":2}");
	ck_assert_uint_eq(json_array_size(json_object_get(answer, "added")), 1);
	ck_assert_uint_eq(json_array_size(json_object_get(answer, "removed")), 1);
	ck_assert_uint_eq(json_array_size(json_object_get(answer, "changed")), 0);
	json_decref(answer);
	/* Before the first there is nothing. */
	answer = ask("{\"op\":\"diff\",\"to\":1}");
	ck_assert_uint_ge(json_array_size(json_object_get(answer, "added")), 1);
	ck_assert_uint_eq(json_array_size(json_object_get(answer, "removed")), 0);
	json_decref(answer);
	/* The parent was dropped: the one before it that is there. */
	eu_save("c", "C");
	eu_seal();
	unit_ok(epochs_drop(u.vol, 2));
	answer = ask("{\"op\":\"diff\",\"to\":3}");
	ck_assert_uint_eq(json_array_size(json_object_get(answer, "added")), 1);
	json_decref(answer);
	answer = ask("{\"op\":\"diff\",\"from\":3,\"to\":\"1\"}");
	ck_assert_uint_eq(json_array_size(json_object_get(answer, "added")), 1);
	json_decref(answer);
}
END_TEST

/* The changed path of this number in the list. */
static void changed_at(json_t *diff, size_t at, const char *path)
{
	const json_t *c = json_array_get(json_object_get(diff, "changed"), at);

	ck_assert_str_eq(json_string_value(json_object_get(c, "path")), path);
	ck_assert(json_is_true(json_object_get(c, "meta")));
	ck_assert_str_eq(json_string_value(json_object_get(c, "type")), "directory");
}

static void change(const char *path, const struct live_change *what)
{
	uint64_t ino = strcmp(path, ".") ? eu_ino(path) : ROOT_INO;
	struct live_attr attr;

	unit_ok(live_setattr(u.vol, ino, 0, what, &attr));
}

START_TEST(diff_shows_what_changed_of_a_directory_but_not_its_times)
{
	const char *dirs[] = {"mode", "owner", "xattr", "time", "filled"};
	json_t *answer;

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		eu_mkdir(dirs[i]);
	eu_seal();
	change("mode", &(struct live_change){.set = LIVE_SET_MODE, .mode = 0700});
	change(".", &(struct live_change){.set = LIVE_SET_MODE, .mode = 0700});
	change("owner", &(struct live_change){.set = LIVE_SET_GID, .gid = 77});
	change("time", &(struct live_change){.set = LIVE_SET_MTIME, .mtime_ns = 5});
	unit_ok(live_setxattr(u.vol, eu_ino("xattr"), "user.x", "1", 1, 0));
	eu_save("filled/f", "f");
	eu_seal();
	answer = ask("{\"op\":\"diff\",\"to\":2}");
	ck_assert_uint_eq(json_array_size(json_object_get(answer, "changed")), 4);
	changed_at(answer, 0, ".");
	changed_at(answer, 1, "mode");
	changed_at(answer, 2, "owner");
	changed_at(answer, 3, "xattr");
	json_decref(answer);
	answer = ask("{\"op\":\"show\",\"epoch\":2}");
	ck_assert_int_eq(
		json_integer_value(json_object_get(json_object_get(answer, "epoch"), "changed")),
		4);
	json_decref(answer);
	answer = ask("{\"op\":\"show\",\"epoch\":1}");
	ck_assert_int_eq(
		json_integer_value(json_object_get(json_object_get(answer, "epoch"), "changed")),
		0);
	json_decref(answer);
}
END_TEST

static const char *held_by(json_t *status)
{
	const json_t *held = json_object_get(json_object_get(status, "pending"), "held_up");

	return json_string_value(json_object_get(held, "by"));
}

START_TEST(status_names_what_holds_a_seal_up)
{
	struct handle *h;
	json_t *status;
	char who[80];

	status = ask("{\"op\":\"status\"}");
	ck_assert_str_eq(json_string_value(json_object_get(status, "uuid")), volume_uuid(u.vol));
	ck_assert(json_is_true(json_object_get(status, "local_only")));
	ck_assert_ptr_null(held_by(status));
	ck_assert_ptr_nonnull(json_object_get(status, "upload"));
	json_decref(status);

	eu_mkdir("d");
	h = eu_open("d/model.pt", O_WRONLY | O_CREAT | O_TRUNC);
	vu_write(h, "abc", 0);
	status = ask("{\"op\":\"status\"}");
	snprintf(who, sizeof(who), "open: d/model.pt by %.15s (pid %d)",
		 program_invocation_short_name, (int)getpid());
	ck_assert_ptr_nonnull(held_by(status));
	ck_assert_msg(strstr(held_by(status), who) != NULL, "%s", held_by(status));
	json_decref(status);
	vu_close(h);
	status = ask("{\"op\":\"status\"}");
	ck_assert_str_eq(held_by(status), "waiting for quiet");
	json_decref(status);
	eu_seal();
	eu_options.settle_ns = NS_PER_S;
	eu_remount();
	eu_mkdir("d/tmp-1");
	status = ask("{\"op\":\"status\"}");
	ck_assert_str_eq(held_by(status), "temporary name: d/tmp-1");
	json_decref(status);
}
END_TEST

START_TEST(status_counts)
{
	const json_t *epochs;
	json_t *status;

	eu_save("a", "abc");
	eu_seal();
	eu_save("b", "abcd");
	status = ask("{\"op\":\"status\"}");
	epochs = json_object_get(status, "epochs");
	ck_assert_int_eq(json_integer_value(json_object_get(epochs, "count")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(epochs, "latest")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(epochs, "current")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(status, "files")), 3);
	json_decref(status);
}
END_TEST

START_TEST(finish_seals)
{
	eu_save("a", "a");
	json_decref(ask("{\"op\":\"finish\",\"drain\":true}"));
	ck_assert_uint_eq(eu_count(), 1);
}
END_TEST

static void start_read_only(void)
{
	eu_start();
	eu_save("a", "a");
	eu_seal();
	volume_close(u.vol);
	eu_options.read_only = true;
	eu_mount();
}

START_TEST(a_read_only_mount_changes_nothing)
{
	refused("{\"op\":\"commit\"}", EROFS, "read-only");
	refused("{\"op\":\"rollback\",\"epoch\":1}", EROFS, "read-only");
	refused("{\"op\":\"rm\",\"epoch\":1}", EROFS, "read-only");
	refused("{\"op\":\"tag\",\"epoch\":1,\"name\":\"x\"}", EROFS, "read-only");
	refused("{\"op\":\"untag\",\"name\":\"x\"}", EROFS, "read-only");
	ask_epoch(1, "{\"op\":\"seal\"}");
	ask_epoch(1, "{\"op\":\"resolve\",\"epoch\":\"latest\"}");
	json_decref(ask("{\"op\":\"status\"}"));
	json_decref(ask("{\"op\":\"log\"}"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("admin_control");
	TCase *t = unit_case(s, "requests");

	tcase_add_checked_fixture(t, eu_start, eu_stop);
	tcase_add_test(t, commit_and_what_names_epochs);
	tcase_add_test(t, refusals_say_what_to_do);
	tcase_add_test(t, the_log_lists_epochs_with_tags);
	tcase_add_test(t, show_and_diff);
	tcase_add_test(t, diff_shows_what_changed_of_a_directory_but_not_its_times);
	tcase_add_test(t, status_names_what_holds_a_seal_up);
	tcase_add_test(t, status_counts);
	tcase_add_test(t, finish_seals);

	t = unit_case(s, "read-only");
	tcase_add_checked_fixture(t, start_read_only, eu_stop);
	tcase_add_test(t, a_read_only_mount_changes_nothing);
	return unit_run(s);
}
