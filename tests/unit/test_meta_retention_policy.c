/* SPDX-License-Identifier: Apache-2.0 */
/* Retention: policies, and what they make of lists of epochs. */
#include "lib/meta/retention_policy.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "tests/unit/unit.h"

#define MAX 400

static struct retention_epoch e[MAX];
static size_t count;

static int64_t at(const char *time)
{
	int64_t ns;

	unit_ok(parse_time(time, &ns));
	return ns;
}

/* A complete and durable epoch with the next number. */
static struct retention_epoch *add_at(int64_t sealed_ns)
{
	e[count] = (struct retention_epoch){
		.number = count + 1, .sealed_ns = sealed_ns, .complete = true, .durable = true};
	return &e[count++];
}

static struct retention_epoch *add(const char *time)
{
	return add_at(at(time));
}

static struct retention_epoch *add_step(uint64_t step)
{
	struct retention_epoch *last = add_at((int64_t)count * NS_PER_S);

	last->has_step = true;
	last->step = step;
	return last;
}

static void decide(const char *text)
{
	char why[RETENTION_WHY_MAX] = "";
	struct retention_policy policy;
	int error = retention_parse(text, &policy, why);

	ck_assert_msg(!error, "%s: %s", text, why);
	unit_ok(retention_decide(&policy, e, count));
}

/* The numbers that stay for this reason (0: for any), as "1 3 4". */
static void stays(const char *policy, unsigned reason, const char *expected)
{
	cleanup_buf struct buf got = {0};

	decide(policy);
	for (size_t i = 0; i < count; i++)
		if (reason ? e[i].reasons & reason : e[i].reasons)
			buf_printf(&got, "%s%zu", got.len ? " " : "", (size_t)e[i].number);
	ck_assert_str_eq(buf_str(&got), expected);
}

/* ---- the policy's text ---- */

START_TEST(a_policy_is_read)
{
	char why[RETENTION_WHY_MAX];
	struct retention_policy p;

	unit_ok(retention_parse(
		"last:10,hourly:24,daily:7,weekly:4,monthly:12,yearly:2,every:1000,tagged", &p,
		why));
	ck_assert_uint_eq(p.n[RETENTION_LAST], 10);
	ck_assert_uint_eq(p.n[RETENTION_HOURLY], 24);
	ck_assert_uint_eq(p.n[RETENTION_DAILY], 7);
	ck_assert_uint_eq(p.n[RETENTION_WEEKLY], 4);
	ck_assert_uint_eq(p.n[RETENTION_MONTHLY], 12);
	ck_assert_uint_eq(p.n[RETENTION_YEARLY], 2);
	ck_assert_uint_eq(p.n[RETENTION_EVERY], 1000);
	ck_assert_uint_eq(p.n[RETENTION_TAGGED], 1);
	unit_ok(retention_parse(" daily:7 , last:18446744073709551615 ", &p, why));
	ck_assert_uint_eq(p.n[RETENTION_LAST], UINT64_MAX);
	ck_assert_uint_eq(p.n[RETENTION_DAILY], 7);
	ck_assert_uint_eq(p.n[RETENTION_HOURLY], 0);
	unit_ok(retention_parse("tagged", &p, why));
}
END_TEST

static const struct {
	const char *text, *why;
} bad[] = {
	{"", "'' is empty"},
	{"last:10,", "'' is empty"},
	{",last:10", "'' is empty"},
	{"last", "'last' needs a number"},
	{"last:", "'last:' needs a number"},
	{"last:0", "'last:0' needs a number from 1"},
	{"last:-1", "'last:-1' needs a number"},
	{"last:1.5", "'last:1.5' needs a number"},
	{"last:ten", "'last:ten' needs a number"},
	{"last: 3", "'last: 3' needs a number"},
	{"last:18446744073709551616", "needs a number"},
	{"hurly:24,last:3", "'hurly:24' is none"},
	{"last=3", "'last=3' is none"},
	{"LAST:3", "'LAST:3' is none"},
	{"3", "'3' is none"},
	{"last:3,daily:1,last:4", "'last:4' comes twice"},
	{"tagged,tagged", "'tagged' comes twice"},
	{"tagged:3", "'tagged:3' takes no number"},
	{"last:000000000000000000000000000000000000000000000000000000000000000003", "is too long"},
};

START_TEST(a_bad_policy_is_refused_and_says_why)
{
	struct retention_policy p = {.n = {77}};
	char why[RETENTION_WHY_MAX] = "";

	unit_error(retention_parse(bad[_i].text, &p, why), -EINVAL);
	ck_assert_msg(strstr(why, bad[_i].why) != NULL, "%s: %s", bad[_i].text, why);
	ck_assert_uint_eq(p.n[RETENTION_LAST], 77);
}
END_TEST

START_TEST(rules_are_told_from_options)
{
	ck_assert(retention_goes_on("keep=last:3,daily:7", "hourly:24,ro"));
	ck_assert(retention_goes_on("keep=last:3", "hurly:24")); /* a slip, to be named as one */
	ck_assert(retention_goes_on("keep=last:3", "tagged"));
	ck_assert(retention_goes_on("keep=last:3", "tagged,ro"));
	ck_assert(!retention_goes_on("keep=last:3", "tag"));
	ck_assert(!retention_goes_on("keep=last:3", "taggedly"));
	ck_assert(!retention_goes_on("keep=last:3", "ro,hourly:24"));
	ck_assert(!retention_goes_on("keep=last:3", ""));
	ck_assert(!retention_goes_on("keep=last:3", "catalog=/a:b"));
	ck_assert(!retention_goes_on("keeper=last:3", "hourly:24"));
	ck_assert(!retention_goes_on("ro", "hourly:24"));
}
END_TEST

/* ---- rules ---- */

START_TEST(the_newest_stay)
{
	for (int i = 0; i < 5; i++)
		add_at(i * NS_PER_S);
	stays("last:3", 0, "3 4 5");
	stays("last:5", 0, "1 2 3 4 5");
	stays("last:500", 0, "1 2 3 4 5");
	stays("last:1", 0, "5");
	count = 0;
	stays("last:1", 0, "");
}
END_TEST

START_TEST(of_each_hour_the_newest_stays)
{
	add("2026-11-21T09:00:00Z");
	add("2026-11-21T09:59:59.999999999Z");
	add("2026-11-21T10:00:00Z");
	add("2026-11-21T10:30:00Z");
	add("2026-11-21T14:00:00Z"); /* hours without one count for nothing */
	stays("hourly:1", 0, "5");
	stays("hourly:2", 0, "4 5");
	stays("hourly:3", 0, "2 4 5");
	stays("hourly:24", 0, "2 4 5");
}
END_TEST

START_TEST(days_are_those_of_utc)
{
	add("2026-11-20T23:59:59Z");
	add("2026-11-21T00:00:00Z");
	add("2026-11-21T23:59:59Z");
	add("2026-11-22T00:00:00Z");
	setenv("TZ", "Asia/Tokyo", 1);
	tzset();
	stays("daily:7", 0, "1 3 4");
	stays("daily:2", 0, "3 4");
}
END_TEST

START_TEST(weeks_begin_on_monday)
{
	add("2026-11-14T12:00:00Z"); /* a Saturday */
	add("2026-11-15T23:59:59Z"); /* Sunday */
	add("2026-11-16T00:00:00Z"); /* Monday */
	add("2026-11-22T23:59:59Z"); /* Sunday */
	add("2026-11-23T00:00:00Z");
	stays("weekly:9", 0, "2 4 5");
}
END_TEST

START_TEST(months_and_years_are_the_calendars)
{
	add("2024-02-29T23:59:59Z");
	add("2024-03-01T00:00:00Z");
	add("2025-03-31T00:00:00Z");
	add("2025-12-31T23:59:59Z");
	add("2026-01-01T00:00:00Z");
	add("2026-01-31T00:00:00Z");
	stays("monthly:12", 0, "1 2 3 4 6");
	stays("monthly:2", 0, "4 6");
	stays("yearly:12", 0, "2 4 6");
	stays("yearly:2", 0, "4 6");
}
END_TEST

START_TEST(times_before_1970_have_hours_and_days_too)
{
	add_at(-3601 * NS_PER_S);
	add_at(-3600 * NS_PER_S);
	add_at(-1);
	add_at(0);
	add_at(1);
	stays("hourly:9", 0, "1 3 5");
	stays("daily:9", 0, "3 5");
	stays("weekly:9", 0, "5");
	stays("yearly:9", 0, "3 5");
}
END_TEST

START_TEST(a_clock_that_stepped_back_keeps_one_of_each_day)
{
	add("2026-11-22T10:00:00Z");
	add("2026-11-21T10:00:00Z");
	add("2026-11-22T09:00:00Z");
	add("2026-11-21T09:00:00Z");
	/* By time the first two are the newest of their days; by number the last is. */
	stays("daily:7", 1u << RETENTION_DAILY, "1 2");
	stays("daily:7", 0, "1 2 4");
	stays("last:1", 0, "4");
}
END_TEST

START_TEST(of_each_step_that_is_a_multiple_the_newest_stays)
{
	add_step(0);
	add_step(500);
	add_step(1000);
	add_step(1000);
	add_step(1500);
	add_step(2000);
	add_at(7 * NS_PER_S);
	stays("every:1000", 0, "1 4 6 7");
	stays("every:1000", 1u << RETENTION_EVERY, "1 4 6");
	stays("every:500", 1u << RETENTION_EVERY, "1 2 4 5 6");
	stays("every:7", 1u << RETENTION_EVERY, "1");
	stays("every:18446744073709551615", 1u << RETENTION_EVERY, "1");
}
END_TEST

START_TEST(an_epoch_without_a_step_is_not_of_step_0)
{
	add_step(0);
	add_at(2 * NS_PER_S);
	add_step(0);
	add_at(4 * NS_PER_S);
	stays("every:10", 1u << RETENTION_EVERY, "3");
}
END_TEST

START_TEST(what_one_rule_wants_stays)
{
	add("2026-11-19T10:00:00Z");
	add("2026-11-20T10:00:00Z");
	add("2026-11-21T10:00:00Z");
	add("2026-11-21T11:00:00Z");
	add("2026-11-21T12:00:00Z");
	e[0].has_step = true;
	e[0].step = 3000;
	e[2].tagged = true;
	stays("last:1,daily:2,every:1000,tagged", 0, "1 2 3 5");
	ck_assert_uint_eq(e[0].reasons, 1u << RETENTION_EVERY);
	ck_assert_uint_eq(e[1].reasons, 1u << RETENTION_DAILY);
	ck_assert_uint_eq(e[2].reasons, 1u << RETENTION_TAGGED);
	ck_assert_uint_eq(e[3].reasons, 0);
	ck_assert_uint_eq(e[4].reasons,
			  1u << RETENTION_LAST | 1u << RETENTION_DAILY | RETENTION_NEWEST);
}
END_TEST

/* ---- what stays always ---- */

START_TEST(tagged_current_newest_and_not_durable_ones_stay)
{
	for (int i = 0; i < 6; i++)
		add_at(i * NS_PER_S);
	e[0].tagged = true;
	e[1].current = true;
	e[4].durable = e[5].durable = false;
	stays("every:5", 0, "1 2 4 5 6");
	ck_assert_uint_eq(e[0].reasons, 1u << RETENTION_TAGGED);
	ck_assert_uint_eq(e[1].reasons, RETENTION_CURRENT);
	ck_assert_uint_eq(e[3].reasons, RETENTION_NEWEST);
	ck_assert_uint_eq(e[4].reasons, RETENTION_PENDING);
	/* What is not durable fills a place, and the newest that is stays beside it. */
	stays("last:1", 0, "1 2 4 5 6");
}
END_TEST

START_TEST(killed_saves_push_nothing_out)
{
	for (int i = 0; i < 8; i++)
		add_at(i * NS_PER_S);
	for (int i = 3; i < 7; i++)
		e[i].complete = false;
	stays("last:3", 0, "2 3 8"); /* of 1, 2, 3 and 8 */
	count = 7;
	/* No whole one came after them. */
	stays("last:2", 0, "2 3 4 5 6 7");
	ck_assert_uint_eq(e[6].reasons, RETENTION_UNFINISHED);
	count = 8;
	e[7].durable = false;
	stays("last:2", 0, "3 4 5 6 7 8");
}
END_TEST

START_TEST(an_incomplete_one_is_not_the_newest_of_its_hour)
{
	add("2026-11-21T09:00:00Z");
	add("2026-11-21T09:30:00Z")->complete = false;
	add("2026-11-21T10:00:00Z");
	stays("hourly:24", 0, "1 3");
}
END_TEST

START_TEST(epochs_of_which_it_is_not_known_count)
{
	for (int i = 0; i < 5; i++) {
		add_at(i * NS_PER_S);
		e[i].complete = i == 0;
		e[i].unknown = i > 0;
	}
	stays("last:2", 0, "1 4 5");
	ck_assert_uint_eq(e[0].reasons, RETENTION_NEWEST);
	ck_assert_uint_eq(e[4].reasons, 1u << RETENTION_LAST | RETENTION_NEWEST);
	stays("every:2", 0, "1 5");
	e[4].durable = false;
	stays("every:2", 0, "1 4 5");
}
END_TEST

START_TEST(without_any_whole_one_all_stay)
{
	for (int i = 0; i < 4; i++)
		add_at(i * NS_PER_S)->complete = false;
	stays("last:1", 0, "1 2 3 4");
}
END_TEST

/* It may turn out to have been sealed in a pause of a save. */
START_TEST(the_complete_one_before_a_recent_one_stays)
{
	for (int i = 0; i < 4; i++)
		add_at(i * NS_PER_S);
	e[3].recent = true;
	stays("last:1", 0, "3 4");
	ck_assert_uint_eq(e[2].reasons, 1u << RETENTION_LAST | RETENTION_BEFORE);
	ck_assert_uint_eq(e[3].reasons, 1u << RETENTION_LAST | RETENTION_NEWEST | RETENTION_RECENT);
	stays("every:2", 0, "3 4");
	e[2].complete = false;
	stays("last:1", 0, "2 4");
	e[1].complete = false;
	e[1].unknown = true;
	stays("last:1", 0, "1 2 4");
	/* What is not durable takes nobody's place. */
	e[1].complete = e[2].complete = true;
	e[2].recent = true;
	e[3].durable = false;
	stays("last:1", 0, "2 3 4");
	/* A further one came, by somebody's word. */
	e[3].durable = true;
	e[2].recent = e[3].recent = false;
	stays("last:1", 0, "4");
}
END_TEST

/* All of them may turn out to be halves of the save that comes. */
START_TEST(what_is_recent_fills_no_place)
{
	for (int i = 0; i < 9; i++) {
		add_at(i * NS_PER_S);
		e[i].recent = i > 4;
	}
	stays("last:3", 0, "3 4 5 6 7 8 9");
	stays("last:3", 1u << RETENTION_LAST, "3 4 5 7 8 9");
	stays("hourly:3", 0, "5 6 7 8 9");
	for (int i = 0; i < 9; i++)
		e[i].recent = false;
	stays("last:3", 0, "7 8 9");
}
END_TEST

/* A directory whose name is a number: all saves are of one step, so any of them may go on with the one before. */
START_TEST(what_may_be_of_the_newest_save_has_its_place)
{
	for (int i = 0; i < 5; i++) {
		add_at(i * NS_PER_S);
		e[i].save = 1;
		e[i].has_step = true;
		e[i].step = 12345;
	}
	stays("last:3", 0, "3 4 5");
	stays("hourly:1", 0, "5");
}
END_TEST

START_TEST(what_is_small_takes_no_place_from_what_is_large)
{
	static const uint64_t bytes[] = {6000, 6000, 10, 5000, 10, 10, 0, 375, 10};

	for (int i = 0; i < 9; i++) {
		add_at(i * NS_PER_S);
		e[i].bytes_new = bytes[i];
	}
	/* 375 is a sixteenth of 6000: as much as a save may differ from another. */
	stays("last:2", 1u << RETENTION_LAST, "4 8 9");
	count = 7;
	stays("last:2", 1u << RETENTION_LAST, "2 4 6 7");
	stays("last:1", 0, "4 7");
	/* The newest of an hour is not a picture alone. */
	stays("hourly:1", 1u << RETENTION_HOURLY, "4 7");
	for (int i = 0; i < 7; i++)
		e[i].sealed_ns = i * 3600 * NS_PER_S;
	stays("hourly:2", 1u << RETENTION_HOURLY, "2 4 6 7");
	for (int i = 0; i < 7; i++)
		e[i].has_step = true;
	stays("every:5", 1u << RETENTION_EVERY, "4 7");
}
END_TEST

/* Who only read, and had times changed, asked for no checkpoint; who removed something and sealed that did. */
START_TEST(what_an_unmount_seals_takes_no_place_from_what_is_large)
{
	for (int i = 0; i < 3; i++) {
		add_at(i * NS_PER_S);
		e[i].bytes_new = i ? 0 : 1000;
	}
	e[1].trigger = RECORD_TRIGGER_UMOUNT;
	e[2].trigger = RECORD_TRIGGER_WAIT;
	stays("last:1", 0, "1 3");
	e[2].trigger = RECORD_TRIGGER_COMMIT;
	stays("last:1", 0, "3");
}
END_TEST

START_TEST(each_kind_of_much_smaller_ones_has_its_places)
{
	for (int i = 0; i < 300; i++) {
		add_at(i * NS_PER_S);
		e[i].bytes_new = i % 10 ? 1000 : 1000000;
	}
	e[0].bytes_new = UINT64_MAX;
	stays("last:2", 0, "1 281 291 299 300");
}
END_TEST

/* Half a step, and a note beside it: no way back from one is the other. */
START_TEST(what_is_of_the_newest_save_fills_no_place)
{
	for (int i = 0; i < 4; i++)
		add_at(i * NS_PER_S);
	e[3].save = e[2].save = 3;
	stays("last:1", 0, "2 4");
	e[2].has_step = true;
	stays("last:1", 0, "2 3 4");
	e[1].save = 2;
	stays("last:1", 0, "2 3 4");
	e[1].save = 3;
	stays("last:1", 0, "1 3 4");
}
END_TEST

static void sealed_by(size_t at, enum record_trigger trigger, uint64_t step, uint64_t half)
{
	e[at].trigger = trigger;
	e[at].has_step = step;
	e[at].step = step;
	e[at].half = half;
}

START_TEST(saves_are_told_by_records)
{
	for (int i = 0; i < 6; i++)
		add_at(i * NS_PER_S);
	sealed_by(0, RECORD_TRIGGER_COMMIT, 10, 0);
	sealed_by(1, RECORD_TRIGGER_QUIET, 20, 0);
	sealed_by(2, RECORD_TRIGGER_QUIET, 0, 2);
	sealed_by(3, RECORD_TRIGGER_UMOUNT, 0, 2);
	sealed_by(4, RECORD_TRIGGER_QUIET, 30, 0);
	sealed_by(5, RECORD_TRIGGER_NEXT, 0, 0);
	retention_find_saves(e, count);
	for (size_t i = 0; i < count; i++)
		ck_assert_uint_eq(e[i].save, ((const uint64_t[]){0, 2, 2, 2, 5, 0})[i]);
}
END_TEST

START_TEST(what_somebody_sealed_since_is_continued_by_nothing)
{
	ck_assert_uint_eq(retention_untold(e, 0), 0);
	for (int i = 0; i < 4; i++) {
		add_at(i * NS_PER_S);
		sealed_by((size_t)i, RECORD_TRIGGER_QUIET, 0, 0);
	}
	ck_assert_uint_eq(retention_untold(e, count), 0);
	e[1].trigger = RECORD_TRIGGER_NEXT;
	ck_assert_uint_eq(retention_untold(e, count), 2);
	e[2].restores = true;
	ck_assert_uint_eq(retention_untold(e, count), 3);
	e[3].trigger = RECORD_TRIGGER_COMMIT;
	ck_assert_uint_eq(retention_untold(e, count), 4);
}
END_TEST

START_TEST(what_a_rollback_left_stays)
{
	for (int i = 0; i < 6; i++) {
		add_at(i * NS_PER_S);
		e[i].parent = (uint64_t)i;
	}
	e[1].complete = false;
	e[2].restores = true;
	count = 3;
	stays("last:1", 0, "2 3");
	ck_assert_uint_eq(e[1].reasons, RETENTION_UNDO);
	/* Until there is something new that is whole, and safe. */
	count = 4;
	e[3].complete = false;
	stays("last:1", 0, "2 3 4");
	e[3].complete = true;
	e[3].durable = false;
	stays("last:1", 0, "2 3 4");
	e[3].durable = true;
	stays("last:1", 0, "4");
	/* Of several rollbacks, the newest; a good one is left, too. */
	e[3].restores = true;
	stays("last:1", 0, "3 4");
	count = 6;
	e[4].restores = e[5].restores = true;
	stays("last:1", 0, "5 6");
}
END_TEST

START_TEST(reasons_have_words)
{
	unsigned all = (1u << RETENTION_RULES) - 1;

	all |= RETENTION_NEWEST | RETENTION_CURRENT | RETENTION_PENDING | RETENTION_UNFINISHED |
	       RETENTION_BEFORE | RETENTION_UNDO | RETENTION_RECENT;
	ck_assert_ptr_null(retention_reason(0, 0));
	ck_assert_str_eq(retention_reason(all, 0), "last");
	ck_assert_str_eq(retention_reason(all, 7), "tagged");
	ck_assert_str_eq(retention_reason(all, 8), "newest");
	ck_assert_str_eq(retention_reason(all, 11), "unfinished");
	ck_assert_str_eq(retention_reason(all, 12), "before");
	ck_assert_str_eq(retention_reason(all, 13), "undo");
	ck_assert_str_eq(retention_reason(all, 14), "recent");
	ck_assert_ptr_null(retention_reason(all, 15));
	ck_assert_str_eq(retention_reason(1u << RETENTION_DAILY | RETENTION_CURRENT, 1), "current");
	ck_assert_ptr_null(retention_reason(1u << RETENTION_DAILY | RETENTION_CURRENT, 2));
}
END_TEST

/* ---- what holds for any list ---- */

static uint64_t seed = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

static void remove_what_goes(void)
{
	size_t left = 0;

	for (size_t i = 0; i < count; i++)
		if (e[i].reasons)
			e[left++] = e[i];
	count = left;
}

static void numbers_of(struct buf *out)
{
	for (size_t i = 0; i < count; i++)
		buf_printf(out, " %zu", (size_t)e[i].number);
}

/* A life of epochs: some killed, some with a step, hours apart; the same each time for a seed. */
static void live(uint64_t which, bool decide_always, const char *policy, struct buf *out)
{
	int64_t now = at("2025-12-30T00:00:00Z");

	seed = 88172645463325252u + which;
	count = 0;
	for (uint64_t number = 1; number <= 300; number++) {
		now += (int64_t)draw(5 * 3600) * NS_PER_S;
		e[count++] = (struct retention_epoch){.number = number,
						      .sealed_ns = now,
						      .has_step = draw(2),
						      .step = number / 2 * 50,
						      .complete = draw(10) > 0,
						      .durable = true};
		if (!decide_always)
			continue;
		decide(policy);
		remove_what_goes();
	}
	decide(policy);
	remove_what_goes();
	numbers_of(out);
}

static const char *const policies[] = {
	"last:5",
	"hourly:24,daily:7",
	"every:1000",
	"last:3,hourly:5,daily:7,weekly:4,monthly:3,yearly:2,every:500",
};

START_TEST(deciding_each_time_leaves_what_deciding_once_leaves)
{
	for (uint64_t which = 0; which < 20; which++) {
		cleanup_buf struct buf once = {0}, always = {0}, again = {0};

		live(which, false, policies[_i], &once);
		decide(policies[_i]);
		remove_what_goes();
		numbers_of(&again);
		live(which, true, policies[_i], &always);
		ck_assert_str_eq(buf_str(&once), buf_str(&always));
		ck_assert_str_eq(buf_str(&once), buf_str(&again));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_retention_policy");
	TCase *text = unit_case(s, "text"), *rules = unit_case(s, "rules");
	TCase *always = unit_case(s, "always");

	tcase_add_test(text, a_policy_is_read);
	tcase_add_loop_test(text, a_bad_policy_is_refused_and_says_why, 0,
			    sizeof(bad) / sizeof(*bad));
	tcase_add_test(text, rules_are_told_from_options);
	tcase_add_test(rules, the_newest_stay);
	tcase_add_test(rules, of_each_hour_the_newest_stays);
	tcase_add_test(rules, days_are_those_of_utc);
	tcase_add_test(rules, weeks_begin_on_monday);
	tcase_add_test(rules, months_and_years_are_the_calendars);
	tcase_add_test(rules, times_before_1970_have_hours_and_days_too);
	tcase_add_test(rules, a_clock_that_stepped_back_keeps_one_of_each_day);
	tcase_add_test(rules, of_each_step_that_is_a_multiple_the_newest_stays);
	tcase_add_test(rules, an_epoch_without_a_step_is_not_of_step_0);
	tcase_add_test(rules, what_one_rule_wants_stays);
	tcase_add_test(always, tagged_current_newest_and_not_durable_ones_stay);
	tcase_add_test(always, killed_saves_push_nothing_out);
	tcase_add_test(always, an_incomplete_one_is_not_the_newest_of_its_hour);
	tcase_add_test(always, epochs_of_which_it_is_not_known_count);
	tcase_add_test(always, without_any_whole_one_all_stay);
	tcase_add_test(always, the_complete_one_before_a_recent_one_stays);
	tcase_add_test(always, what_is_recent_fills_no_place);
	tcase_add_test(always, what_may_be_of_the_newest_save_has_its_place);
	tcase_add_test(always, what_is_small_takes_no_place_from_what_is_large);
	tcase_add_test(always, what_an_unmount_seals_takes_no_place_from_what_is_large);
	tcase_add_test(always, each_kind_of_much_smaller_ones_has_its_places);
	tcase_add_test(always, what_is_of_the_newest_save_fills_no_place);
	tcase_add_test(always, saves_are_told_by_records);
	tcase_add_test(always, what_somebody_sealed_since_is_continued_by_nothing);
	tcase_add_test(always, what_a_rollback_left_stays);
	tcase_add_test(always, reasons_have_words);
	tcase_add_loop_test(always, deciding_each_time_leaves_what_deciding_once_leaves, 0,
			    sizeof(policies) / sizeof(*policies));
	return unit_run(s);
}
