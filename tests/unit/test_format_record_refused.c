/* SPDX-License-Identifier: Apache-2.0 */
/* Records of epochs that are refused: wrong members, other formats, lengths beyond the bounds. */
#include "lib/format/record.h"
#include "tests/unit/unit.h"

#define UUID  "0f8fad5b-d9cb-469f-a165-70867728950e"
#define HEX_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
/* With more members. */
#define SMALLEST "{\"format\":1,\"epoch\":1,\"volume\":\"" UUID "\",\"complete\":true%s}"

/* Decodes the smallest record with more members. */
static int decode_with(const char *members)
{
	cleanup_record struct epoch_record got = {0};
	cleanup_buf struct buf b = {0};

	buf_printf(&b, SMALLEST, members);
	return record_decode(b.data, b.len, &got);
}

START_TEST(each_wrong_member_is_malformed)
{
	static const char *const bad[] = {
		",\"doubts\": {}",
		",\"doubts\": [{}]",
		",\"doubts\": [{\"path\": \"\"}]",
		",\"doubts\": [{\"path\": \"a\", \"since\": -1}]",
		",\"doubts\": [{\"path\": \"a\", \"companions\": [1]}]",
		",\"doubts\": [{\"path\": \"a\", \"counts\": 1}]",
		",\"doubts\": [{\"path\": \"a\", \"path_bytes\": \"\"}]",
		",\"doubts\": [{\"path\": \"a\", \"path_bytes\": \"f\"}]",
		",\"doubts\": [{\"path\": \"a\", \"path_bytes\": \"fx\"}]",
		",\"doubts\": [{\"path\": \"a\", \"path_bytes\": \"FF\"}]",
		",\"doubts\": [{\"path\": \"a\", \"path_bytes\": \"ff00\"}]",
		",\"doubts\": [{\"path_bytes\": \"ff\"}]",
		",\"doubts\": [{\"path\": \"a\", \"companions_bytes\": [\"ff\", \"f\"]}]",
		",\"doubts\": [{\"path\": \"a\", \"companions_bytes\": \"ff\"}]",
		",\"doubted\": 1",
		",\"epoch\":2",
		",\"parent\":-1",
		",\"parent\":\"1\"",
		",\"parent\":1.5",
		",\"parent\":99999999999999999999",
		",\"parent\":null",
		",\"reason\":5",
		",\"reason\":\"\\u0000\"",
		",\"reason\":\"\xff\"",
		",\"trigger\":5",
		",\"step\":true",
		",\"sealed\":\"yesterday\"",
		",\"sealed\":\"1969-12-31T23:59:59Z\"",
		",\"sealed\":5",
		",\"files\":-1",
		",\"tree\":5",
		",\"tree\":{}",
		",\"tree\":{\"hash\":\"" HEX_A "\",\"size\":0,\"chunks\":[]}",
		",\"tree\":{\"hash\":\"" HEX_A "\",\"size\":1}",
		",\"tree\":{\"hash\":\"" HEX_A "0\",\"size\":1,\"chunks\":[]}",
		",\"tree\":{\"hash\":\"" HEX_A "\",\"size\":1,\"chunks\":[1]}",
		",\"tree\":{\"hash\":\"" HEX_A "\",\"size\":2,\"chunks\":[{\"hash\":\"" HEX_A
		"\",\"length\":1}]}",
		",\"tree\":{\"hash\":\"" HEX_A "\",\"size\":0,\"chunks\":[{\"hash\":\"" HEX_A
		"\",\"length\":0}]}",
		",\"tree\":{\"hash\":\"" HEX_A "\",\"size\":1,\"chunks\":[{\"hash\":\"" HEX_A
		"\",\"length\":1,\"pack\":0,\"offset\":4,\"stored\":1}]}",
		",\"packs\":[\"" HEX_A "\"],\"tree\":{\"hash\":\"" HEX_A
		"\",\"size\":1,\"chunks\":[{\"hash\":\"" HEX_A "\",\"length\":1,\"pack\":0}]}",
		",\"packs\":{}",
		",\"packs\":[5]",
		",\"packs\":[\"../../etc\"]",
		",\"indexes\":[\"index/../../etc\"]",
		",\"indexes\":[5]",
		",\"node_names\":\"n\"",
		",\"node_names\":[null]",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int error = decode_with(bad[i]);

		ck_assert_msg(error == -EBADMSG, "%s: %d", bad[i], error);
	}
	unit_ok(decode_with(""));
	unit_ok(decode_with(",\"later\":{\"x\":[null]},\"trigger\":\"later\""));
	unit_ok(decode_with(",\"tree\":{\"hash\":\"" HEX_A "\",\"size\":1,\"chunks\":[]}"));
	unit_ok(decode_with(",\"packs\":[\"" HEX_A "\"],\"tree\":{\"hash\":\"" HEX_A
			    "\",\"size\":1,\"chunks\":[{\"hash\":\"" HEX_A
			    "\",\"length\":1,\"pack\":0,\"offset\":4,\"stored\":1}]}"));
}
END_TEST

static int decode(const char *json)
{
	cleanup_record struct epoch_record got = {0};

	return record_decode(json, strlen(json), &got);
}

START_TEST(what_is_no_record_is_told_from_a_newer_one)
{
	unit_error(decode("{\"format\":2}"), -EPROTONOSUPPORT);
	unit_error(decode(""), -EBADMSG);
	unit_error(decode("hello"), -EBADMSG);
	unit_error(decode("[]"), -EBADMSG);
	unit_error(decode("{}"), -EBADMSG);
	unit_error(decode("{\"format\":1}"), -EBADMSG);
	unit_error(decode("{\"format\":1,\"volume\":\"" UUID "\",\"complete\":true}"), -EBADMSG);
	unit_error(decode("{\"format\":1,\"epoch\":1,\"complete\":true}"), -EBADMSG);
	unit_error(decode("{\"format\":1,\"epoch\":1,\"volume\":\"" UUID "\"}"), -EBADMSG);
	unit_error(decode("{\"format\":1,\"epoch\":0,\"volume\":\"" UUID "\",\"complete\":true}"),
		   -EBADMSG);
	unit_error(decode("{\"format\":1,\"epoch\":1,\"volume\":\"" UUID "\",\"complete\":1}"),
		   -EBADMSG);
	unit_error(
		decode("{\"format\":1,\"epoch\":1,\"volume\":\"" UUID "\",\"complete\":\"yes\"}"),
		-EBADMSG);
}
END_TEST

START_TEST(lengths_are_bounded)
{
	cleanup_record struct epoch_record got = {0};
	cleanup_buf struct buf b = {0}, list = {0};

	/* One text too long by one byte. */
	buf_printf(&b, ",\"message\":\"");
	for (size_t i = 0; i < RECORD_TEXT_MAX; i++)
		buf_put_u8(&b, 'x');
	buf_printf(&b, "\"");
	unit_ok(decode_with(buf_str(&b)));
	b.len--;
	buf_printf(&b, "x\"");
	unit_error(decode_with(buf_str(&b)), -EBADMSG);
	/* One name too many. */
	buf_printf(&list, ",\"node_names\":[\"\"");
	for (int i = 1; i < RECORD_LIST_MAX; i++)
		buf_printf(&list, ",\"\"");
	buf_printf(&list, "]");
	unit_ok(decode_with(buf_str(&list)));
	list.len--;
	buf_printf(&list, ",\"\"]");
	unit_error(decode_with(buf_str(&list)), -EBADMSG);
	/* The whole. */
	buf_reset(&b);
	buf_printf(&b, SMALLEST, "");
	while (b.len < RECORD_ENCODED_MAX && !buf_error(&b))
		buf_put_u8(&b, ' ');
	unit_ok(buf_error(&b));
	unit_ok(record_decode(b.data, b.len, &got));
	record_free(&got);
	buf_put_u8(&b, ' ');
	unit_error(record_decode(b.data, b.len, &got), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_record_refused");
	TCase *t = unit_case(s, "record");

	tcase_add_test(t, each_wrong_member_is_malformed);
	tcase_add_test(t, what_is_no_record_is_told_from_a_newer_one);
	tcase_add_test(t, lengths_are_bounded);
	return unit_run(s);
}
