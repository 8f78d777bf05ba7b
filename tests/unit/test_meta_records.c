/* SPDX-License-Identifier: Apache-2.0 */
/* Records, tombstones, summaries and tags in a remote. */
#include "lib/meta/records.h"

#include <inttypes.h>
#include <stdbool.h>

#include "lib/format/names.h"
#include "lib/format/record.h"
#include "lib/net/open.h"
#include "tests/unit/unit.h"

static struct remote *r;

static void setup(void)
{
	unit_ok(remote_open("memory:records", &r));
}

static void teardown(void)
{
	remote_close(r);
}

static char *text_of(uint64_t number, const char *host)
{
	struct epoch_record record = {.number = number,
				      .volume = "0b0ec43d-6a7b-4b4d-8a0e-2f6a3a3a3a3a",
				      .complete = RECORD_COMPLETE,
				      .host = strdup(host),
				      .run_id = strdup("run"),
				      .sealed_ns = 1000 + (int64_t)number};
	struct buf text = {0};
	size_t len;

	unit_ok(record_encode(&record, &text));
	record_free(&record);
	buf_str(&text);
	unit_ok(buf_error(&text));
	return buf_steal(&text, &len);
}

static void put_text(uint64_t number, const char *text)
{
	char key[KEY_MAX];

	epoch_key(number, key);
	unit_ok(remote_put(r, key, text, strlen(text)));
}

static void put_record(uint64_t number, const char *host)
{
	cleanup_free char *text = text_of(number, host);

	put_text(number, text);
}

/* The same remote, where each read of what begins so fails: what is read all the same was not read from there. */
static struct remote *without(const char *prefix)
{
	cleanup_free char *url = NULL;
	struct remote *faulty;

	ck_assert_int_gt(asprintf(&url, "fault+memory:records?get.error=1&only=%s", prefix), 0);
	unit_ok(remote_open(url, &faulty));
	return faulty;
}

/* What a walk found: "1 2d 3?" for a record, a tombstone, and what is damaged. */
struct seen {
	char text[4096];
	uint64_t end; /* ends the walk there */
};

static int note(void *arg, const struct record_found *found)
{
	struct seen *s = arg;
	size_t len = strlen(s->text);

	if (found->record)
		ck_assert_uint_eq(found->record->number, found->number);
	snprintf(s->text + len, sizeof(s->text) - len, "%s%" PRIu64 "%s", len ? " " : "",
		 found->number,
		 found->record	  ? ""
		 : found->dropped ? "d"
				  : "?");
	return found->number == s->end ? 77 : 0;
}

static void walk(struct remote *from, uint64_t after, const char *expected)
{
	struct seen s = {{0}, 0};

	unit_ok(records_each(from, after, note, &s));
	ck_assert_str_eq(s.text, expected);
}

START_TEST(all_come_in_order)
{
	struct seen s = {{0}, 2};

	walk(r, 0, "");
	for (uint64_t n = 12; n; n--)
		put_record(n, "a");
	walk(r, 0, "1 2 3 4 5 6 7 8 9 10 11 12");
	walk(r, 9, "10 11 12");
	walk(r, 12, "");
	ck_assert_int_eq(records_each(r, 0, note, &s), 77);
	ck_assert_str_eq(s.text, "1 2");
}
END_TEST

START_TEST(tombstones_damage_and_strangers)
{
	cleanup_free char *other = text_of(9, "a");

	for (uint64_t n = 1; n <= 5; n++)
		put_record(n, "a");
	unit_ok(records_drop(r, 2, NULL));
	put_text(3, "{\"epoch\":");
	put_text(4, other); /* another epoch's record under this number */
	unit_ok(remote_put(r, "epochs/README", "hello", 5));
	unit_ok(remote_put(r, "epochs/5.json", "hello", 5));
	walk(r, 0, "1 2d 3? 4? 5");
}
END_TEST

START_TEST(a_remote_that_fails_is_no_empty_remote)
{
	struct remote *faulty = without("epochs/");
	struct seen s = {{0}, 0};

	put_record(1, "a");
	put_record(2, "a");
	unit_error(records_each(faulty, 0, note, &s), -EIO);
	ck_assert_str_eq(s.text, "");
	remote_close(faulty);
}
END_TEST

START_TEST(a_newer_record_ends_it)
{
	struct seen s = {{0}, 0};

	put_text(1, "{\"format\":99,\"epoch\":1}");
	unit_error(records_each(r, 0, note, &s), -EPROTONOSUPPORT);
}
END_TEST

START_TEST(one_record)
{
	struct epoch_record record;
	cleanup_free char *text = NULL, *expected = text_of(7, "a");

	put_record(7, "a");
	unit_ok(records_get(r, 7, &record, &text));
	ck_assert_uint_eq(record.number, 7);
	ck_assert_str_eq(record.host, "a");
	ck_assert_str_eq(text, expected);
	record_free(&record);
	unit_error(records_get(r, 8, &record, NULL), -ENOENT);
	put_text(8, expected);
	unit_error(records_get(r, 8, &record, NULL), -EBADMSG);
	unit_ok(records_drop(r, 7, NULL));
	unit_error(records_get(r, 7, &record, NULL), -ENOENT);
}
END_TEST

/* A text that fills its buffer: what ends it needs more memory. */
static char *text_of_length(uint64_t number, size_t len)
{
	cleanup_free char *host = NULL, *one = text_of(number, "0");

	ck_assert_uint_lt(strlen(one), len);
	ck_assert_int_ge(asprintf(&host, "%0*d", (int)(len - strlen(one) + 1), 0), 0);
	return text_of(number, host);
}

/* Reads a record with one allocation after the other failing: that is told, or (NULL: a tombstone) the record comes as it is. */
static void get_without_memory(uint64_t number, const char *expected)
{
	bool failed = unit_fail_alloc != NULL;
	unsigned failures = 0;

	for (uint64_t n = 1; failed && unit_fail_alloc(n); n++) {
		cleanup_free char *text = NULL;
		struct epoch_record record = {0};
		int error = records_get(r, number, &record, &text);

		failed = unit_alloc_failed();
		unit_fail_alloc(0);
		failures += failed;
		unit_error(error, failed ? -ENOMEM : expected ? 0 : -ENOENT);
		ck_assert((text != NULL) == !error);
		if (text)
			ck_assert_str_eq(text, expected);
		record_free(&record);
	}
	ck_assert(!unit_fail_alloc || unit_is_hurried() || failures > 1);
}

START_TEST(a_record_comes_whole_or_there_was_no_memory)
{
	cleanup_free char *expected = text_of_length(7, 1024);

	ck_assert_uint_eq(strlen(expected), 1024);
	put_text(7, expected);
	get_without_memory(7, expected);
}
END_TEST

START_TEST(a_tombstone_is_no_damage_where_there_was_no_memory)
{
	unit_ok(records_drop(r, 8, NULL));
	get_without_memory(8, NULL);
}
END_TEST

START_TEST(a_walk_without_memory_finds_no_damage)
{
	bool failed = unit_fail_alloc != NULL;

	put_record(1, "a");
	unit_ok(records_drop(r, 2, NULL));
	for (uint64_t n = 1; failed && unit_fail_alloc(n); n++) {
		struct seen s = {{0}, 0};
		int error = records_each(r, 0, note, &s);

		failed = unit_alloc_failed();
		unit_fail_alloc(0);
		ck_assert_msg(error ? error == -ENOMEM && !strchr(s.text, '?')
				    : !strcmp(s.text, "1 2d"),
			      "allocation %u: %d, %s", (unsigned)n, error, s.text);
	}
}
END_TEST

START_TEST(the_same_epoch)
{
	struct epoch_record a = {.sealed_ns = 5, .host = (char[]){"x"}, .run_id = (char[]){"r"}};
	struct epoch_record b = a;

	ck_assert(records_same_epoch(&a, &b));
	b.sealed_ns = 6;
	ck_assert(!records_same_epoch(&a, &b));
	b = a;
	b.host = (char[]){"y"};
	ck_assert(!records_same_epoch(&a, &b));
	b = a;
	b.run_id = NULL;
	ck_assert(!records_same_epoch(&a, &b));
	a.run_id = NULL;
	ck_assert(records_same_epoch(&a, &b));
}
END_TEST

/* ---- dropping ---- */

START_TEST(a_dropped_number_is_taken_for_ever)
{
	cleanup_free char *text = text_of(3, "a");
	char key[KEY_MAX];

	epoch_key(3, key);
	/* One that the remote never saw. */
	unit_ok(records_drop(r, 3, text));
	walk(r, 0, "3d");
	unit_error(remote_put_if_absent(r, key, text, strlen(text)), -EEXIST);
	unit_ok(records_drop(r, 3, text)); /* again, after a crash */
	walk(r, 0, "3d");
}
END_TEST

START_TEST(a_tombstone_keeps_the_record)
{
	cleanup_free char *text = text_of(3, "a"), *kept = NULL, *none = NULL;
	cleanup_record struct epoch_record record = {0}, other = {0};

	unit_error(records_dropped(r, 3, &record, &kept), -ENOENT);
	put_record(3, "a");
	unit_error(records_dropped(r, 3, &record, &kept), -EEXIST);
	unit_ok(records_drop(r, 3, text));
	unit_ok(records_dropped(r, 3, &record, &kept));
	ck_assert_str_eq(kept, text);
	ck_assert_uint_eq(record.number, 3);
	/* One that the remote never saw, and one that was damaged, have none. */
	unit_ok(records_drop(r, 4, text));
	unit_error(records_dropped(r, 4, &other, &none), -ENODATA);
	put_text(5, "junk");
	unit_error(records_dropped(r, 5, &other, &none), -EBADMSG);
	unit_ok(records_drop(r, 5, NULL));
	unit_error(records_dropped(r, 5, &other, &none), -ENODATA);
}
END_TEST

START_TEST(what_another_writer_put_stays)
{
	cleanup_free char *ours = text_of(3, "a");

	put_record(3, "b");
	unit_error(records_drop(r, 3, ours), -EEXIST);
	walk(r, 0, "3");
	put_record(3, "a");
	unit_ok(records_drop(r, 3, ours));
	walk(r, 0, "3d");
	/* What is damaged is nobody's. */
	put_text(4, "junk");
	unit_ok(records_drop(r, 4, ours));
	walk(r, 3, "4d");
}
END_TEST

/* ---- summaries ---- */

static void put_hundreds(uint64_t last)
{
	for (uint64_t n = 1; n <= last; n++) {
		put_record(n, "a");
		unit_ok(records_summarize(r, n));
	}
}

static size_t count_text(const char *text, char c)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == c;
	return n;
}

START_TEST(a_summary_spares_the_records)
{
	struct remote *faulty = without("epochs/");
	struct seen s = {{0}, 0};
	uint64_t size;
	char key[KEY_MAX];

	put_hundreds(205);
	for (uint64_t n = 100; n <= 200; n += 100) {
		summary_key(n, key);
		unit_ok(remote_size(r, key, &size));
	}
	/* 201 to 205 are in none. */
	unit_error(records_each(faulty, 0, note, &s), -EIO);
	for (uint64_t n = 201; n <= 205; n++) {
		epoch_key(n, key);
		unit_ok(remote_delete(r, key));
	}
	s.text[0] = '\0';
	unit_ok(records_each(faulty, 0, note, &s));
	ck_assert_uint_eq(count_text(s.text, ' '), 199);
	s.text[0] = '\0';
	unit_ok(records_each(faulty, 150, note, &s));
	ck_assert_uint_eq(count_text(s.text, ' '), 49);
	remote_close(faulty);
}
END_TEST

START_TEST(without_its_summary_each_is_read_by_itself)
{
	struct seen s = {{0}, 0};
	char key[KEY_MAX];

	put_hundreds(100);
	summary_key(100, key);
	for (int i = 0; i < 3; i++) {
		const char *damaged[] = {"", "{\"format\":1,\"records\":7}", "{\"format\":1,\"rec"};

		unit_ok(remote_put(r, key, damaged[i], strlen(damaged[i])));
		s.text[0] = '\0';
		unit_ok(records_each(r, 0, note, &s));
		ck_assert_uint_eq(count_text(s.text, ' '), 99);
	}
}
END_TEST

START_TEST(a_summary_makes_no_epochs)
{
	/* Of a number that has no record, of one outside its hundred, and nonsense. */
	cleanup_free char *gone = text_of(50, "evil"), *far = text_of(101, "evil");
	cleanup_buf struct buf out = {0};
	struct epoch_record record;

	put_record(1, "a");
	put_record(101, "a");
	unit_ok(summary_add(&out, gone));
	unit_ok(summary_add(&out, far));
	unit_ok(summary_add(&out, "{\"epoch\":-1}"));
	unit_ok(summary_add(&out, "[1]"));
	unit_ok(summary_put(r, 100, &out));
	walk(r, 0, "1 101");
	unit_ok(records_get(r, 101, &record, NULL));
	ck_assert_str_eq(record.host, "a");
	record_free(&record);
}
END_TEST

START_TEST(what_is_damaged_in_a_summary_may_be_whole_by_itself)
{
	cleanup_buf struct buf out = {0};

	put_record(1, "a");
	put_record(2, "a");
	unit_ok(summary_add(&out, "{\"epoch\":1}"));
	unit_ok(summary_add(&out, "{\"epoch\":2,\"format\":\"x\"}"));
	unit_ok(summary_put(r, 100, &out));
	walk(r, 0, "1 2");
}
END_TEST

START_TEST(a_dropped_epoch_leaves_no_summary)
{
	uint64_t size;
	char key[KEY_MAX];

	put_hundreds(200);
	unit_ok(records_drop(r, 150, NULL));
	summary_key(200, key);
	unit_error(remote_size(r, key, &size), -ENOENT);
	summary_key(100, key);
	unit_ok(remote_size(r, key, &size));
	walk(r, 148,
	     "149 150d 151 152 153 154 155 156 157 158 159 160 161 162 163 164 165 166 167 168 169 "
	     "170 171 172 173 174 175 176 177 178 179 180 181 182 183 184 185 186 187 188 189 190 191 "
	     "192 193 194 195 196 197 198 199 200");
}
END_TEST

/* ---- tags ---- */

static int note_tag(void *arg, const char *name, uint64_t number)
{
	char *text = arg;

	sprintf(text + strlen(text), "%s=%" PRIu64 " ", name, number);
	return 0;
}

static void put_tag(const char *key, const char *text)
{
	unit_ok(remote_put(r, key, text, strlen(text)));
}

START_TEST(tags_are_read_and_damaged_ones_are_told)
{
	char name[TAG_NAME_MAX + 1], key[KEY_MAX], text[TAG_TEXT_MAX], found[512] = "";

	unit_ok(records_tags(r, note_tag, found));
	ck_assert_str_eq(found, "");
	unit_ok(tag_key("best", key));
	ck_assert_int_eq(tag_key_parse(key, name), 0);
	tag_text(12, text);
	put_tag(key, text);
	unit_ok(records_tags(r, note_tag, found));
	ck_assert_str_eq(found, "best=12 ");
	put_tag(key, "twelve");
	found[0] = '\0';
	unit_ok(records_tags(r, note_tag, found));
	ck_assert_str_eq(found, "best=0 ");
	/* What is no tag is passed over. */
	put_tag(key, text);
	put_tag("tags/.hidden", text);
	unit_ok(tag_key("long", key));
	put_tag(key, "1234567890123456789012345678901234567890");
	found[0] = '\0';
	unit_ok(records_tags(r, note_tag, found));
	ck_assert_str_eq(found, "best=12 ");
}
END_TEST

struct continued {
	uint64_t number, continues, from;
};

static int note_continues(void *arg, const struct record_found *found)
{
	struct continued *c = arg;

	if (found->number == c->number) {
		c->continues = found->continues;
		c->from = found->continues_from;
	}
	return 0;
}

/* Also one that never came to the remote, of which the tombstone keeps no record. */
START_TEST(a_tombstone_keeps_what_its_epoch_continued)
{
	const struct epoch_record record = {.number = 3,
					    .continues = 2,
					    .continues_from = 1,
					    .volume = "0b0ec43d-6a7b-4b4d-8a0e-2f6a3a3a3a3a",
					    .sealed_ns = 1003};
	cleanup_buf struct buf text = {0};
	struct continued c = {.number = 3};

	unit_ok(record_encode(&record, &text));
	if (_i)
		put_text(3, buf_str(&text));
	unit_ok(records_each(r, 0, note_continues, &c));
	ck_assert_uint_eq(c.continues, _i ? 2 : 0);
	ck_assert_uint_eq(c.from, _i ? 1 : 0);
	c.continues = c.from = 0;
	unit_ok(records_drop(r, 3, buf_str(&text)));
	unit_ok(records_each(r, 0, note_continues, &c));
	ck_assert_uint_eq(c.continues, 2);
	ck_assert_uint_eq(c.from, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_records");
	TCase *t = unit_case(s, "records");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_tombstone_keeps_what_its_epoch_continued, 0, 2);
	tcase_add_test(t, all_come_in_order);
	tcase_add_test(t, tombstones_damage_and_strangers);
	tcase_add_test(t, a_remote_that_fails_is_no_empty_remote);
	tcase_add_test(t, a_newer_record_ends_it);
	tcase_add_test(t, one_record);
	tcase_add_test(t, a_record_comes_whole_or_there_was_no_memory);
	tcase_add_test(t, a_tombstone_is_no_damage_where_there_was_no_memory);
	tcase_add_test(t, a_walk_without_memory_finds_no_damage);
	tcase_add_test(t, the_same_epoch);
	tcase_add_test(t, a_dropped_number_is_taken_for_ever);
	tcase_add_test(t, a_tombstone_keeps_the_record);
	tcase_add_test(t, what_another_writer_put_stays);
	tcase_add_test(t, a_summary_spares_the_records);
	tcase_add_test(t, without_its_summary_each_is_read_by_itself);
	tcase_add_test(t, a_summary_makes_no_epochs);
	tcase_add_test(t, what_is_damaged_in_a_summary_may_be_whole_by_itself);
	tcase_add_test(t, a_dropped_epoch_leaves_no_summary);
	tcase_add_test(t, tags_are_read_and_damaged_ones_are_told);
	return unit_run(s);
}
