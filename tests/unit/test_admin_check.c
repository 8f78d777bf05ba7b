/* SPDX-License-Identifier: Apache-2.0 */
/* Trying out remotes: good ones, and ones that fail, damage or cut. */
#include "lib/admin/check.h"

#include "lib/net/open.h"
#include "tests/unit/unit.h"

static json_t *check_ok(const char *url)
{
	const struct check_options how = {.object_size = 100000};
	json_t *report = NULL;
	char *message = NULL;

	unit_ok(check_remote(url, &how, &report, &message));
	ck_assert_ptr_null(message);
	return report;
}

static bool usable(const json_t *report)
{
	return json_is_true(json_object_get(report, "usable"));
}

static const char *text_of(const json_t *report, const char *key)
{
	return json_string_value(json_object_get(report, key));
}

/* The entry of this operation. */
static json_t *operation(const json_t *report, const char *name)
{
	json_t *o;
	size_t i;

	json_array_foreach(json_object_get(report, "operations"), i,
			   o) if (strcmp(text_of(o, "name"), name) == 0) return o;
	ck_abort_msg("no operation %s", name);
	return NULL;
}

static bool went_well(const json_t *report, const char *name)
{
	return json_is_true(json_object_get(operation(report, name), "ok"));
}

static int count_it(void *arg, const char *key, uint64_t size)
{
	(void)key, (void)size;
	++*(int *)arg;
	return 0;
}

static int objects(struct remote *r)
{
	int count = 0;

	unit_ok(remote_list(r, "", count_it, &count));
	return count;
}

START_TEST(a_good_remote_is_usable_and_left_as_it_was)
{
	struct remote *r = NULL;
	json_t *report, *o;
	size_t i;

	unit_ok(remote_open("memory:good", &r));
	unit_ok(remote_put(r, "packs/mine", "x", 1));
	report = check_ok("memory:good");
	ck_assert(usable(report));
	json_array_foreach(json_object_get(report, "operations"), i, o)
		ck_assert_msg(json_is_true(json_object_get(o, "ok")), "%s", text_of(o, "name"));
	ck_assert_uint_ge(i, 10);
	ck_assert_str_eq(text_of(report, "create_if_absent"), "atomic");
	ck_assert_uint_eq(json_object_size(json_object_get(report, "latency_ms")), 5);
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(report, "throughput"),
							    "object_bytes")),
			 100000);
	ck_assert_int_gt(json_integer_value(json_object_get(json_object_get(report, "throughput"),
							    "download_many")),
			 0);
	json_decref(report);
	ck_assert_int_eq(objects(r), 1);
	remote_close(r);
}
END_TEST

START_TEST(what_fails_is_told_and_nothing_stays)
{
	static const struct {
		const char *faults, *operation;
	} cases[] = {{"get.damage=1", "get"},
		     {"get.short=1", "get a range"},
		     {"size.error=1", "size"},
		     {"list.denied=1", "list"},
		     {"create.error=1", "create if absent"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct remote *r = NULL;
		json_t *report;
		char url[128];

		unit_ok(remote_open("memory:bad", &r));
		snprintf(url, sizeof(url), "fault+memory:bad?%s", cases[i].faults);
		report = check_ok(url);
		ck_assert(!usable(report));
		ck_assert(!went_well(report, cases[i].operation));
		ck_assert(went_well(report, "put"));
		ck_assert_uint_eq(json_array_size(json_object_get(report, "advice")), 1);
		json_decref(report);
		ck_assert_int_eq(objects(r), 0);
		remote_close(r);
	}
}
END_TEST

START_TEST(a_remote_that_takes_nothing_is_an_error)
{
	static const struct {
		const char *url;
		int error;
	} cases[] = {{"none", -EACCES},
		     {"fault+memory:x?put.denied=1", -EACCES},
		     {"fault+memory:x?down=1", -EHOSTUNREACH},
		     {"/no/such/directory/here", -ENOENT},
		     {"nonsense:x", -EINVAL}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct check_options how = {0};
		json_t *report = NULL;
		char *message = NULL;

		unit_error(check_remote(cases[i].url, &how, &report, &message), cases[i].error);
		ck_assert_ptr_null(report);
		ck_assert_ptr_nonnull(message);
		free(message);
	}
}
END_TEST

/* Stores in a folder; put-if-absent waits long enough for all to have looked before. */
static const char racy[] = "d=${0%/*}/store; o=$d/$2; mkdir -p $d/packs\n"
			   "case $1 in\n"
			   "capabilities) echo put-if-absent;;\n"
			   "put) cat >$d/t$$ && mv $d/t$$ $o;;\n"
			   "put-if-absent) [ -e $o ] && exit 8; sleep 0.3; cat >$o;;\n"
			   "get) [ -e $o ] || exit 5; cat $o;;\n"
			   "list) cd $d && find packs -type f -printf '%s %p\\n';;\n"
			   "delete) rm -f $o;;\n"
			   "*) exit 1;;\n"
			   "esac\n";

START_TEST(a_condition_that_races_break_is_found_out)
{
	char *dir = unit_dir(), *path = unit_path(dir, "script"), *url = NULL;
	json_t *report;

	unit_ok(io_replace_file(AT_FDCWD, path, racy, strlen(racy)));
	ck_assert_int_gt(asprintf(&url, "exec:sh %s", path), 0);
	report = check_ok(url);
	ck_assert(usable(report));
	ck_assert_str_eq(text_of(report, "create_if_absent"), "racy");
	ck_assert(!went_well(report, "create in a race"));
	json_decref(report);
	free(url);
	free(path);
	free(dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("admin_check");
	TCase *t = unit_case(s, "check");

	tcase_add_test(t, a_good_remote_is_usable_and_left_as_it_was);
	tcase_add_test(t, what_fails_is_told_and_nothing_stays);
	tcase_add_test(t, a_remote_that_takes_nothing_is_an_error);
	tcase_add_test(t, a_condition_that_races_break_is_found_out);
	return unit_run(s);
}
