/* SPDX-License-Identifier: Apache-2.0 */
/* Records of epochs. */
#include "lib/format/chunk.h"
#include "lib/format/wire.h"
#include "lib/format/pack.h"
#include "lib/format/record.h"
#include "tests/unit/unit.h"

#define UUID	  "0f8fad5b-d9cb-469f-a165-70867728950e"
#define HEX_OF(c) c c c c c c c c c c c c c c c c
#define HEX_A	  HEX_OF("aaaa")
#define HEX_B	  HEX_OF("bbbb")
#define INDEX	  "index/00000000000000000042-" HEX_A

static char *text(const char *s)
{
	char *copy = strdup(s);

	ck_assert_ptr_nonnull(copy);
	return copy;
}

/* Every member has a value. */
static void make_full(struct epoch_record *r)
{
	*r = (struct epoch_record){
		.number = 42,
		.parent = 41,
		.volume = UUID,
		.complete = RECORD_INCOMPLETE,
		.reason = text("the writer of model.pt was killed"),
		.continues = 40,
		.continues_from = 38,
		.half = 39,
		.renames = text("0123456789abcdef fedcba9876543210"),
		.restores = 39,
		.trigger = RECORD_TRIGGER_RENAME,
		.has_step = true,
		.step = 500,
		.step_name = text("checkpoint-500"),
		.message = text("sch\xc3\xb6n"),
		.host = text("node7"),
		.run_id = text("run-1"),
		.user = text("ann"),
		.opened_ns = INT64_C(1700000000000000001),
		.sealed_ns = INT64_C(1700000001000000002),
		.durable_ns = INT64_C(1700000002000000003),
		.save_ns = 5,
		.files = 3,
		.directories = 2,
		.symlinks = 1,
		.specials = 4,
		.added = 7,
		.changed = 8,
		.removed = 9,
		.bytes = INT64_MAX,
		.bytes_new = 10,
		.bytes_stored = 6,
		.tree_size = 150,
		.chunk_count = 2,
		.pack_count = 1,
		.index_count = 1,
		.db_type = text("minidb"),
		.db_prefix = text("/mnt/ckpt"),
		.path_type = text("local"),
		.path_prefix = text("run"),
		.node_count = 2,
		.doubt_count = 2,
	};
	memset(r->tree_hash.bytes, 0xaa, HASH_SIZE);
	r->chunks = calloc(2, sizeof(*r->chunks));
	r->packs = calloc(1, sizeof(*r->packs));
	r->indexes = calloc(1, sizeof(*r->indexes));
	r->node_names = calloc(2, sizeof(*r->node_names));
	ck_assert(r->chunks && r->packs && r->indexes && r->node_names);
	r->chunks[0] = (struct record_chunk){r->tree_hash, 100, 0, 4, 90};
	r->chunks[1] = (struct record_chunk){r->tree_hash, 50, RECORD_NO_PACK, 0, 0};
	memset(r->packs[0].bytes, 0xbb, HASH_SIZE);
	r->doubts = calloc(2, sizeof(*r->doubts));
	ck_assert_ptr_nonnull(r->doubts);
	r->doubts[0] = (struct record_doubt){
		.path = text("b"),
		.kind = text("undone"),
		.why = text("its writer was killed"),
		.since = 40,
		.at_ns = INT64_C(1700000000000000001),
		.counts = true,
		.companions = calloc(1, sizeof(char *)),
		.companion_count = 1,
	};
	r->doubts[0].companions[0] = text("a");
	r->doubts[1] = (struct record_doubt){.path = text("c"), .kind = text("torn")};
	r->indexes[0] = text(INDEX);
	r->node_names[0] = text("node:0");
	r->node_names[1] = text("");
}

static const char full_text[] = "{\n"
				"  \"format\": 1,\n"
				"  \"epoch\": 42,\n"
				"  \"parent\": 41,\n"
				"  \"volume\": \"" UUID "\",\n"
				"  \"complete\": false,\n"
				"  \"reason\": \"the writer of model.pt was killed\",\n"
				"  \"doubts\": [\n"
				"    {\n"
				"      \"path\": \"b\",\n"
				"      \"kind\": \"undone\",\n"
				"      \"why\": \"its writer was killed\",\n"
				"      \"since\": 40,\n"
				"      \"at\": \"2023-11-14T22:13:20.000000001Z\",\n"
				"      \"counts\": true,\n"
				"      \"companions\": [\n"
				"        \"a\"\n"
				"      ]\n"
				"    },\n"
				"    {\n"
				"      \"path\": \"c\",\n"
				"      \"kind\": \"torn\"\n"
				"    }\n"
				"  ],\n"
				"  \"continues\": 40,\n"
				"  \"continues_from\": 38,\n"
				"  \"half\": 39,\n"
				"  \"renames\": \"0123456789abcdef fedcba9876543210\",\n"
				"  \"restores\": 39,\n"
				"  \"trigger\": \"rename\",\n"
				"  \"step\": 500,\n"
				"  \"step_name\": \"checkpoint-500\",\n"
				"  \"message\": \"sch\xc3\xb6n\",\n"
				"  \"host\": \"node7\",\n"
				"  \"run_id\": \"run-1\",\n"
				"  \"user\": \"ann\",\n"
				"  \"opened\": \"2023-11-14T22:13:20.000000001Z\",\n"
				"  \"sealed\": \"2023-11-14T22:13:21.000000002Z\",\n"
				"  \"durable\": \"2023-11-14T22:13:22.000000003Z\",\n"
				"  \"save_ns\": 5,\n"
				"  \"files\": 3,\n"
				"  \"directories\": 2,\n"
				"  \"symlinks\": 1,\n"
				"  \"specials\": 4,\n"
				"  \"added\": 7,\n"
				"  \"changed\": 8,\n"
				"  \"removed\": 9,\n"
				"  \"bytes\": 9223372036854775807,\n"
				"  \"bytes_new\": 10,\n"
				"  \"bytes_stored\": 6,\n"
				"  \"tree\": {\n"
				"    \"hash\": \"" HEX_A "\",\n"
				"    \"size\": 150,\n"
				"    \"chunks\": [\n"
				"      {\n"
				"        \"hash\": \"" HEX_A "\",\n"
				"        \"length\": 100,\n"
				"        \"pack\": 0,\n"
				"        \"offset\": 4,\n"
				"        \"stored\": 90\n"
				"      },\n"
				"      {\n"
				"        \"hash\": \"" HEX_A "\",\n"
				"        \"length\": 50\n"
				"      }\n"
				"    ]\n"
				"  },\n"
				"  \"packs\": [\n"
				"    \"" HEX_B "\"\n"
				"  ],\n"
				"  \"indexes\": [\n"
				"    \"" INDEX "\"\n"
				"  ],\n"
				"  \"db_type\": \"minidb\",\n"
				"  \"db_prefix\": \"/mnt/ckpt\",\n"
				"  \"path_type\": \"local\",\n"
				"  \"path_prefix\": \"run\",\n"
				"  \"node_names\": [\n"
				"    \"node:0\",\n"
				"    \"\"\n"
				"  ]\n"
				"}\n";

START_TEST(people_can_read_all_of_it)
{
	cleanup_record struct epoch_record r = {0};
	cleanup_buf struct buf b = {0};

	make_full(&r);
	unit_ok(record_encode(&r, &b));
	ck_assert_str_eq(buf_str(&b), full_text);
}
END_TEST

START_TEST(every_member_comes_back)
{
	cleanup_record struct epoch_record r = {0}, got = {0};
	cleanup_buf struct buf b = {0};

	make_full(&r);
	unit_ok(record_decode(full_text, strlen(full_text), &got));
	ck_assert_uint_eq(got.number, 42);
	ck_assert_uint_eq(got.parent, 41);
	ck_assert_str_eq(got.volume, UUID);
	ck_assert_int_eq(got.complete, RECORD_INCOMPLETE);
	ck_assert_str_eq(got.reason, r.reason);
	ck_assert_uint_eq(got.continues, 40);
	ck_assert_uint_eq(got.continues_from, 38);
	ck_assert_uint_eq(got.half, 39);
	ck_assert_str_eq(got.renames, "0123456789abcdef fedcba9876543210");
	ck_assert_uint_eq(got.restores, 39);
	ck_assert_int_eq(got.trigger, RECORD_TRIGGER_RENAME);
	ck_assert(got.has_step);
	ck_assert_uint_eq(got.step, 500);
	ck_assert_int_eq(got.opened_ns, r.opened_ns);
	ck_assert_int_eq(got.sealed_ns, r.sealed_ns);
	ck_assert_int_eq(got.durable_ns, r.durable_ns);
	ck_assert_uint_eq(got.bytes, INT64_MAX);
	ck_assert_uint_eq(got.chunk_count, 2);
	ck_assert_uint_eq(got.chunks[0].stored_len, 90);
	ck_assert_uint_eq(got.chunks[1].pack, RECORD_NO_PACK);
	ck_assert(hash_equal(&got.packs[0], &r.packs[0]));
	ck_assert_str_eq(got.indexes[0], INDEX);
	ck_assert_uint_eq(got.node_count, 2);
	/* The rest by its text. */
	unit_ok(record_encode(&got, &b));
	ck_assert_str_eq(buf_str(&b), full_text);
}
END_TEST

START_TEST(a_copy_is_its_own)
{
	cleanup_record struct epoch_record copy = {0};
	struct epoch_record r;
	cleanup_buf struct buf b = {0};

	make_full(&r);
	unit_ok(record_copy(&r, &copy));
	record_free(&r);
	unit_ok(record_encode(&copy, &b));
	ck_assert_str_eq(buf_str(&b), full_text);
	record_free(&copy);
	r = (struct epoch_record){.number = 1, .volume = UUID};
	unit_ok(record_copy(&r, &copy));
	ck_assert_ptr_null(copy.chunks);
}
END_TEST

START_TEST(what_is_unknown_is_left_out)
{
	const struct epoch_record r = {.number = 1, .volume = UUID};
	cleanup_record struct epoch_record got = {0};
	cleanup_buf struct buf b = {0};

	unit_ok(record_encode(&r, &b));
	ck_assert_ptr_null(strstr(buf_str(&b), "tree"));
	ck_assert_ptr_null(strstr(buf_str(&b), "step"));
	ck_assert_ptr_null(strstr(buf_str(&b), "parent"));
	ck_assert_ptr_nonnull(strstr(buf_str(&b), "\"complete\": \"unknown\""));
	unit_ok(record_decode(b.data, b.len, &got));
	ck_assert_int_eq(got.complete, RECORD_UNKNOWN);
	ck_assert(!got.has_step);
	ck_assert_ptr_null(got.message);
	ck_assert_int_eq(got.sealed_ns, 0);
}
END_TEST

START_TEST(step_0_is_a_step)
{
	const struct epoch_record r = {.number = 1, .volume = UUID, .has_step = true};
	cleanup_record struct epoch_record got = {0};
	cleanup_buf struct buf b = {0};

	unit_ok(record_encode(&r, &b));
	unit_ok(record_decode(b.data, b.len, &got));
	ck_assert(got.has_step);
	ck_assert_uint_eq(got.step, 0);
}
END_TEST

START_TEST(every_trigger_has_a_name)
{
	for (unsigned int i = 0; i < RECORD_TRIGGER_COUNT; i++) {
		const char *name = record_trigger_name((enum record_trigger)i);

		ck_assert_ptr_nonnull(name);
		ck_assert_int_eq(record_trigger_parse(name), i);
	}
	ck_assert_str_eq(record_trigger_name((enum record_trigger)99), "unknown");
	ck_assert_int_eq(record_trigger_parse("of the moon"), RECORD_TRIGGER_UNKNOWN);
}
END_TEST

/* What the message is after writing and reading. */
static void check_message(const char *message, const char *want)
{
	cleanup_record struct epoch_record r = {.number = 1, .volume = UUID}, got = {0};
	cleanup_buf struct buf b = {0};

	r.message = text(message);
	unit_ok(record_encode(&r, &b));
	unit_ok(record_decode(b.data, b.len, &got));
	ck_assert_str_eq(got.message, want);
}

#define FFFD "\xef\xbf\xbd"

START_TEST(text_that_is_not_utf8_is_mended)
{
	char long_text[RECORD_TEXT_MAX + 100];

	check_message("a\xff\x62", "a" FFFD "b");
	check_message("cut \xc3", "cut " FFFD);
	check_message("overlong \xc0\xaf", "overlong " FFFD FFFD);
	check_message("overlong \xe0\x80\xaf", "overlong " FFFD FFFD FFFD);
	check_message("surrogate \xed\xa0\x80", "surrogate " FFFD FFFD FFFD);
	check_message("too large \xf4\x90\x80\x80", "too large " FFFD FFFD FFFD FFFD);
	check_message("\xf5\x80\x80\x80", FFFD FFFD FFFD FFFD);
	check_message("good \xe2\x82\xac \xf0\x9f\x98\x80 \"\\\n\t\x01",
		      "good \xe2\x82\xac \xf0\x9f\x98\x80 \"\\\n\t\x01");
	/* Cut between two characters. */
	memset(long_text, 'x', sizeof(long_text));
	memcpy(long_text + RECORD_TEXT_MAX - 1, "\xe2\x82\xac", 3);
	long_text[sizeof(long_text) - 1] = '\0';
	{
		cleanup_free char *want = strndup(long_text, RECORD_TEXT_MAX - 1);

		check_message(long_text, want);
	}
}
END_TEST

/* Writing the full record with one thing changed. */
#define CHECK_REFUSED(error, change)                                                               \
	do {                                                                                       \
		cleanup_record struct epoch_record r = {0};                                        \
		cleanup_buf struct buf b = {0};                                                    \
		make_full(&r);                                                                     \
		change;                                                                            \
		unit_error(record_encode(&r, &b), error);                                          \
		ck_assert_uint_eq(b.len, 0);                                                       \
	} while (0)

/* A text of 64 bytes fills the first memory that it gets. */
START_TEST(a_text_without_memory_is_none)
{
	json_t *value = NULL;
	char text[65] = "";

	memset(text, 'x', 64);
	if (!unit_fail_alloc || unit_is_hurried())
		unit_skip("this build lets no allocation fail");
	for (uint64_t n = 1; !value; n++) {
		ck_assert(unit_fail_alloc(n));
		value = json_wire_text(text, 1000);
		ck_assert(unit_alloc_failed() != (value != NULL));
		unit_fail_alloc(0);
	}
	ck_assert_str_eq(json_string_value(value), text);
	json_decref(value);
}
END_TEST

START_TEST(what_breaks_a_rule_is_not_written)
{
	CHECK_REFUSED(-EINVAL, r.number = 0);
	CHECK_REFUSED(-EINVAL, r.number = (uint64_t)INT64_MAX + 1);
	CHECK_REFUSED(-EINVAL, r.bytes = UINT64_MAX);
	CHECK_REFUSED(-EINVAL, r.volume[0] = 'x');
	CHECK_REFUSED(-EINVAL, r.volume[35] = '\0');
	CHECK_REFUSED(-EINVAL, r.opened_ns = -1);
	CHECK_REFUSED(-EINVAL, r.complete = (enum record_complete)7);
	CHECK_REFUSED(-EINVAL, r.tree_size = 149);
	CHECK_REFUSED(-EINVAL, r.chunks[0].length = 0; r.tree_size = 50);
	CHECK_REFUSED(-EINVAL, r.chunks[0].length = CHUNK_PLAIN_MAX + 1;
		      r.tree_size = CHUNK_PLAIN_MAX + 51);
	CHECK_REFUSED(-EINVAL, r.chunks[0].pack = 1);
	CHECK_REFUSED(-EINVAL, r.chunks[0].offset = 3);
	CHECK_REFUSED(-EINVAL, r.chunks[0].stored_len = 0);
	CHECK_REFUSED(-EINVAL, r.chunks[0].stored_len = CHUNK_FRAME_MAX + 1);
	CHECK_REFUSED(-EINVAL, r.chunks[0].offset = PACK_LEN_MAX - 89);
	CHECK_REFUSED(-EINVAL, r.indexes[0][0] = '/');
}
END_TEST

START_TEST(a_record_that_would_be_too_long_is_not_written)
{
	cleanup_record struct epoch_record r = {0};
	cleanup_buf struct buf b = {0};

	make_full(&r);
	for (size_t i = 0; i < r.node_count; i++)
		free(r.node_names[i]);
	free(r.node_names);
	r.node_count = 100;
	r.node_names = calloc(r.node_count, sizeof(*r.node_names));
	ck_assert_ptr_nonnull(r.node_names);
	for (size_t i = 0; i < r.node_count; i++) {
		r.node_names[i] = calloc(1, RECORD_TEXT_MAX);
		ck_assert_ptr_nonnull(r.node_names[i]);
		memset(r.node_names[i], 'n', RECORD_TEXT_MAX - 1);
	}
	unit_error(record_encode(&r, &b), -EFBIG);
	ck_assert_uint_eq(b.len, 0);
}
END_TEST

/* Names on Linux are bytes. */
/* What it is said to take at most, it takes at most, whatever its names are. */
START_TEST(doubts_that_just_fit_are_encoded)
{
	static const char *const names[] = {"a", "\001\001", "\"\\", "\xff\xfe\xff",
					    "sch\xc3\xb6n/model.pt"};
	struct epoch_record r;
	cleanup_buf struct buf json = {0};
	size_t size = 0;

	make_full(&r);
	record_doubts_free(r.doubts, r.doubt_count);
	r.doubts = calloc(RECORD_LIST_MAX, sizeof(*r.doubts));
	ck_assert_ptr_nonnull(r.doubts);
	for (r.doubt_count = 0; r.doubt_count < RECORD_LIST_MAX; r.doubt_count++) {
		struct record_doubt *d = &r.doubts[r.doubt_count];

		*d = (struct record_doubt){
			.path = text(names[_i]),
			.kind = text("undone"),
			.why = text("its writer was killed"),
			.since = INT64_MAX,
			.at_ns = INT64_MAX,
			.counts = true,
			.alone = true,
			.companions = calloc(RECORD_LIST_MAX, sizeof(char *)),
		};
		ck_assert_ptr_nonnull(d->companions);
		/* One has as many as there may be, the others none: either way is what takes most. */
		while (r.doubt_count < 4 && d->companion_count < RECORD_LIST_MAX &&
		       size + record_doubt_size(d) < RECORD_DOUBTS_SIZE_MAX)
			d->companions[d->companion_count++] = text(names[_i]);
		size += record_doubt_size(d);
		if (size > RECORD_DOUBTS_SIZE_MAX)
			break;
	}
	r.doubt_count++;
	record_doubt_drop_last(&r);
	ck_assert_uint_ge(r.doubt_count, 3);
	unit_ok(record_encode(&r, &json));
	ck_assert_uint_lt(json.len, RECORD_DOUBTS_SIZE_MAX + 4096);
	record_free(&r);
}
END_TEST

START_TEST(paths_in_doubt_that_are_no_utf8_come_back)
{
	cleanup_record struct epoch_record r = {.number = 1,
						.volume = UUID,
						.complete = RECORD_INCOMPLETE},
					   got = {0};
	cleanup_buf struct buf b = {0};

	r.doubted = true;
	r.doubts = calloc(1, sizeof(*r.doubts));
	ck_assert_ptr_nonnull(r.doubts);
	r.doubt_count = 1;
	r.doubts[0] = (struct record_doubt){
		.path = text("d/\xff\xfe"),
		.kind = text("undone"),
		.companions = calloc(3, sizeof(char *)),
		.companion_count = 3,
	};
	r.doubts[0].companions[0] = text("sch\xc3\xb6n");
	r.doubts[0].companions[1] = text("\xe9");
	r.doubts[0].companions[2] = text("z");
	unit_ok(record_encode(&r, &b));
	ck_assert_ptr_nonnull(strstr(buf_str(&b), "\"path\": \"d/\xef\xbf\xbd\xef\xbf\xbd\""));
	ck_assert_ptr_nonnull(strstr(buf_str(&b), "\"path_bytes\": \"642ffffe\""));
	unit_ok(record_decode(b.data, b.len, &got));
	ck_assert(got.doubted);
	ck_assert_uint_eq(got.doubt_count, 1);
	ck_assert_str_eq(got.doubts[0].path, "d/\xff\xfe");
	ck_assert_uint_eq(got.doubts[0].companion_count, 3);
	ck_assert_str_eq(got.doubts[0].companions[0], "sch\xc3\xb6n");
	ck_assert_str_eq(got.doubts[0].companions[1], "z");
	ck_assert_str_eq(got.doubts[0].companions[2], "\xe9");
}
END_TEST

START_TEST(every_cut_is_malformed)
{
	cleanup_record struct epoch_record got = {0};

	/* All but the last brace's newline matter. */
	for (size_t len = 0; len < sizeof(full_text) - 2; len++)
		unit_error(record_decode(full_text, len, &got), -EBADMSG);
	ck_assert_ptr_null(got.reason);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_record");
	TCase *t = unit_case(s, "record");

	tcase_add_test(t, people_can_read_all_of_it);
	tcase_add_test(t, every_member_comes_back);
	tcase_add_test(t, a_copy_is_its_own);
	tcase_add_test(t, what_is_unknown_is_left_out);
	tcase_add_test(t, step_0_is_a_step);
	tcase_add_test(t, every_trigger_has_a_name);
	tcase_add_test(t, text_that_is_not_utf8_is_mended);
	tcase_add_test(t, a_text_without_memory_is_none);
	tcase_add_test(t, what_breaks_a_rule_is_not_written);
	tcase_add_test(t, a_record_that_would_be_too_long_is_not_written);
	tcase_add_loop_test(t, doubts_that_just_fit_are_encoded, 0, 5);
	tcase_add_test(t, paths_in_doubt_that_are_no_utf8_come_back);
	tcase_add_test(t, every_cut_is_malformed);
	return unit_run(s);
}
