/* SPDX-License-Identifier: Apache-2.0 */
/* What S3 says in XML, true or hostile. */
#include "lib/net/s3_xml.h"

#include "lib/util/buf.h"
#include "tests/unit/unit.h"

#define HEAD                                                                                       \
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>"                                               \
	"<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define TAIL		  "</ListBucketResult>"
#define OBJECT(key, size) "<Contents><Key>" key "</Key><Size>" size "</Size></Contents>"

static int decode(const char *text, struct s3_page *ret_page)
{
	/* Exactly as long as the text, so that a sanitizer sees a read behind it. */
	size_t len = strlen(text);
	char *copy = malloc(len ? len : 1);
	int r;

	memcpy(copy, text, len);
	r = s3_page_decode(copy, len, ret_page);
	free(copy);
	return r;
}

START_TEST(a_page_gives_keys_sizes_and_where_to_go_on)
{
	struct s3_page cleanup_s3_page page = {0}, last = {0};

	unit_ok(decode(
		HEAD
		"<Name>b</Name><Prefix>a&amp;b/</Prefix><IsTruncated>true</IsTruncated>"
		"<Contents><Owner><ID>Key</ID></Owner><Key>a&amp;b/&lt;x&gt;</Key>"
		"<Size>18446744073709551615</Size><ETag>&quot;e&quot;</ETag></Contents>" OBJECT(
			"a/%2B", "0") "<CommonPrefixes><Prefix>z</Prefix></CommonPrefixes>"
				      "<NextContinuationToken>t+/=</NextContinuationToken>" TAIL,
		&page));
	ck_assert_uint_eq(page.count, 2);
	ck_assert_str_eq(page.objects[0].key, "a&b/<x>");
	ck_assert_uint_eq(page.objects[0].size, UINT64_MAX);
	ck_assert_str_eq(page.objects[1].key, "a/%2B");
	ck_assert_uint_eq(page.objects[1].size, 0);
	ck_assert_str_eq(page.next, "t+/=");
	unit_ok(decode(HEAD "<IsTruncated>false</IsTruncated><NextContinuationToken>t"
			    "</NextContinuationToken>" TAIL,
		       &last));
	ck_assert_uint_eq(last.count, 0);
	ck_assert_ptr_null(last.next);
}
END_TEST

START_TEST(encoded_keys_are_decoded_wherever_the_page_says_so)
{
	struct s3_page cleanup_s3_page page = {0}, before = {0};

	unit_ok(decode(HEAD OBJECT("a%2Fb+c%2B%0a", "1") "<EncodingType>url</EncodingType>" TAIL,
		       &page));
	ck_assert_str_eq(page.objects[0].key, "a/b c+\n");
	unit_ok(decode("<s:ListBucketResult xmlns:s='x'><s:EncodingType>url</s:EncodingType>"
		       "<s:Contents><s:Key>%7E</s:Key><s:Size>1</s:Size></s:Contents>"
		       "</s:ListBucketResult>",
		       &before));
	ck_assert_str_eq(before.objects[0].key, "~");
}
END_TEST

START_TEST(hostile_pages_are_refused)
{
	static const char *const bad[] = {
		"",
		"not xml",
		"<html><body>Not Found</body></html>",
		"<Error><Code>SlowDown</Code></Error>",
		HEAD,
		HEAD OBJECT("a", "1"),
		HEAD OBJECT("a", "1") TAIL "x",
		HEAD OBJECT("", "1") TAIL,
		HEAD OBJECT("a", "") TAIL,
		HEAD OBJECT("a", "-1") TAIL,
		HEAD OBJECT("a", "18446744073709551616") TAIL,
		HEAD OBJECT("a", "1x") TAIL,
		HEAD "<Contents><Key>a</Key></Contents>" TAIL,
		HEAD "<Contents><Size>1</Size></Contents>" TAIL,
		HEAD OBJECT("a", "1") "<Contents><Key>b</Key></Contents>" TAIL,
		HEAD "<IsTruncated>true</IsTruncated>" TAIL,
		HEAD "<IsTruncated>true</IsTruncated><NextContinuationToken/>" TAIL,
		HEAD OBJECT("a%", "1") "<EncodingType>url</EncodingType>" TAIL,
		HEAD OBJECT("a%00", "1") "<EncodingType>url</EncodingType>" TAIL,
		HEAD OBJECT("a&#0;", "1") TAIL,
		HEAD OBJECT("&undefined;", "1") TAIL,
		"<!DOCTYPE x SYSTEM 'file:///etc/passwd'>" HEAD TAIL,
		"<!DOCTYPE l [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;&a;'>]>"
		"<ListBucketResult><Contents><Key>&b;</Key><Size>1</Size></Contents></ListBucketResult>",
		"<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a>"
		"</a></a></a></a></a></a></a></a></a>",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct s3_page page = {0};
		int r = decode(bad[i], &page);

		ck_assert_msg(r == -EBADMSG, "%zu: %s: %d", i, bad[i], r);
		ck_assert(!page.objects && !page.next);
	}
}
END_TEST

/* A page of so many objects. */
static int decode_many(unsigned count)
{
	struct s3_page cleanup_s3_page page = {0};
	struct buf cleanup_buf text = {0};
	int r;

	buf_printf(&text, HEAD);
	for (unsigned i = 0; i < count; i++)
		buf_printf(&text, OBJECT("k%u", "%u"), i, i);
	buf_printf(&text, TAIL);
	r = s3_page_decode(text.data, text.len, &page);
	if (r == 0)
		ck_assert_uint_eq(page.count, count);
	return r;
}

START_TEST(a_page_has_at_most_a_thousand_objects)
{
	unit_ok(decode_many(1000));
	unit_error(decode_many(1001), -EBADMSG);
}
END_TEST

START_TEST(long_texts_and_names_are_refused)
{
	struct s3_page cleanup_s3_page page = {0}, none = {0};
	struct buf cleanup_buf text = {0}, name = {0};

	buf_printf(&text, HEAD "<Contents><Key>%0*d</Key><Size>1</Size></Contents>" TAIL,
		   XML_TEXT_MAX, 7);
	unit_ok(s3_page_decode(text.data, text.len, &page));
	buf_reset(&text);
	buf_printf(&text, HEAD "<Contents><Key>%0*d</Key><Size>1</Size></Contents>" TAIL,
		   XML_TEXT_MAX + 1, 7);
	unit_error(s3_page_decode(text.data, text.len, &none), -EBADMSG);
	buf_printf(&name, "<ListBucketResult><a%0300d/></ListBucketResult>", 7);
	unit_error(s3_page_decode(name.data, name.len, &none), -EBADMSG);
}
END_TEST

START_TEST(errors_are_told_apart_wherever_they_stand)
{
	static const char s3[] =
		"<?xml version='1.0'?><Error><Code>NoSuchBucket</Code><Message>m"
		"</Message><Region>eu-west-1</Region><Endpoint>e</Endpoint></Error>";
	static const char sts[] =
		"<ErrorResponse xmlns='x'><Error><Type>Sender</Type><Code>AccessDenied"
		"</Code><Message>no</Message></Error></ErrorResponse>";
	static const char cut[] = "<Error><Code>NoSuchBucket</Code>";
	struct buf cleanup_buf long_code = {0};
	struct s3_error e;

	s3_error_decode(s3, strlen(s3), &e);
	ck_assert_str_eq(e.code, "NoSuchBucket");
	ck_assert_str_eq(e.message, "m");
	ck_assert_str_eq(e.region, "eu-west-1");
	ck_assert_str_eq(e.endpoint, "e");
	s3_error_decode(sts, strlen(sts), &e);
	ck_assert_str_eq(e.code, "AccessDenied");
	s3_error_decode(cut, strlen(cut), &e);
	ck_assert_str_eq(e.code, "");
	s3_error_decode("<html>", 6, &e);
	ck_assert_str_eq(e.code, "");
	s3_error_decode(NULL, 0, &e);
	ck_assert_str_eq(e.code, "");
	buf_printf(&long_code, "<Error><Code>%0500d</Code></Error>", 1);
	s3_error_decode(long_code.data, long_code.len, &e);
	ck_assert_uint_eq(strlen(e.code), sizeof(e.code) - 1);
}
END_TEST

#define RESULT(text)                                                                               \
	"<?xml version='1.0'?><DeleteResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>" text \
	"</DeleteResult>"
#define FAILURE(key, code) "<Error><Key>" key "</Key><Code>" code "</Code></Error>"

struct stale_retry {
	unsigned count;
	unsigned stop_at; /* 0: never */
	struct s3_error last;
};

static int tell(void *arg, const struct s3_error *e)
{
	struct stale_retry *told = arg;

	told->last = *e;
	return ++told->count == told->stop_at ? 77 : 0;
}

static int decode_failures(const char *text, struct stale_retry *told)
{
	size_t len = strlen(text);
	char *copy = malloc(len ? len : 1);
	int r;

	memcpy(copy, text, len);
	r = s3_failures_decode(copy, len, tell, told);
	free(copy);
	return r;
}

START_TEST(failures_of_many_are_told_one_by_one)
{
	struct stale_retry none = {0}, two = {0}, stopped = {.stop_at = 1};

	unit_ok(decode_failures("<DeleteResult/>", &none));
	unit_ok(decode_failures(RESULT("<Deleted><Key>a</Key></Deleted>"), &none));
	ck_assert_uint_eq(none.count, 0);
	unit_ok(decode_failures(
		RESULT("<Deleted><Key>a</Key></Deleted>" FAILURE(
			"b",
			"SlowDown") "<Error><Code>AccessDenied</Code><Key>c</Key><Message>m</Message></Error>"),
		&two));
	ck_assert_uint_eq(two.count, 2);
	ck_assert_str_eq(two.last.code, "AccessDenied");
	ck_assert_str_eq(two.last.message, "m");
	unit_error(decode_failures(RESULT(FAILURE("a", "b") FAILURE("c", "d")), &stopped), 77);
	ck_assert_uint_eq(stopped.count, 1);
}
END_TEST

START_TEST(hostile_answers_to_many_are_refused)
{
	static const char *const bad[] = {
		"",
		"ok",
		"<html/>",
		"<DeleteResultX/>",
		"<DeleteResult>",
		"<Error><Code>InternalError</Code></Error>",
		RESULT("<Error/>"),
		RESULT("<Error><Key>a</Key></Error>"),
		RESULT("<Error><Code>AccessDenied</Code></Error>"),
		RESULT(FAILURE("", "AccessDenied")),
		RESULT(FAILURE("a", "")),
		RESULT(FAILURE("a", "x") "<Error><Code>y</Code></Error>"),
		"<!DOCTYPE x [<!ENTITY a 'b'>]><DeleteResult>" FAILURE("&a;",
								       "c") "</DeleteResult>",
		RESULT("") "x",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct stale_retry told = {0};
		int r = decode_failures(bad[i], &told);

		ck_assert_msg(r == -EBADMSG, "%zu: %s: %d", i, bad[i], r);
	}
}
END_TEST

START_TEST(no_more_failures_than_keys_are_believed)
{
	struct buf cleanup_buf text = {0};
	struct stale_retry told = {0};

	buf_printf(&text, "<DeleteResult>");
	for (unsigned i = 0; i < S3_DELETE_MAX; i++)
		buf_printf(&text, FAILURE("k%u", "AccessDenied"), i);
	buf_printf(&text, "</DeleteResult>");
	unit_ok(s3_failures_decode(text.data, text.len, tell, &told));
	ck_assert_uint_eq(told.count, S3_DELETE_MAX);
	text.len -= strlen("</DeleteResult>");
	buf_printf(&text, FAILURE("more", "AccessDenied") "</DeleteResult>");
	unit_error(s3_failures_decode(text.data, text.len, tell, &told), -EBADMSG);
}
END_TEST

static int put_version(void *arg, const struct s3_version *v)
{
	buf_printf(arg, "%s@%s%s ", v->key, v->id, v->deleted ? "!" : "");
	return strcmp(v->id, "stop") ? 0 : 77;
}

static int decode_versions(const char *text, struct buf *out)
{
	buf_reset(out);
	return s3_versions_decode(text, strlen(text), put_version, out);
}

#define VERSION(kind, key, id)                                                                     \
	"<" kind "><Key>" key "</Key><VersionId>" id                                               \
	"</VersionId><IsLatest>true</IsLatest></" kind ">"

START_TEST(versions_and_markers_come_in_their_order)
{
	static const char *const bad[] = {
		"",
		"<ListBucketResult/>",
		"<ListVersionsResult>" VERSION("Version", "", "1") "</ListVersionsResult>",
		"<ListVersionsResult>" VERSION(
			"Version", "a", "1") "<Version><Key>b</Key></Version></ListVersionsResult>",
		"<ListVersionsResult><DeleteMarker/></ListVersionsResult>",
		"<ListVersionsResult>" VERSION("Version", "a", "1"),
	};
	struct buf cleanup_buf out = {0};

	unit_ok(decode_versions("<ListVersionsResult/>", &out));
	ck_assert_uint_eq(out.len, 0);
	unit_ok(decode_versions(
		"<ListVersionsResult><Prefix>p</Prefix>" VERSION("DeleteMarker", "p/a&amp;", "3")
			VERSION("Version", "p/a&amp;", "2")
				VERSION("Version", "p/b", "x/+1") "</ListVersionsResult>",
		&out));
	ck_assert_str_eq(buf_str(&out), "p/a&@3! p/a&@2 p/b@x/+1 ");
	unit_error(decode_versions("<ListVersionsResult>" VERSION("Version", "a", "stop")
					   VERSION("Version", "b", "1") "</ListVersionsResult>",
				   &out),
		   77);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		unit_error(decode_versions(bad[i], &out), -EBADMSG);
}
END_TEST

static int take_text(void *arg, const char *path, const char *text)
{
	(void)path;
	buf_printf(arg, "%s", text);
	return 0;
}

START_TEST(what_is_escaped_comes_back)
{
	static const char odd[] = "a&b<c>d\"e'f]]>&amp;\xc3\xa4/";
	struct buf cleanup_buf text = {0}, back = {0};

	buf_printf(&text, "<a>");
	s3_xml_escape(&text, odd);
	buf_printf(&text, "</a>");
	ck_assert_ptr_null(strstr(buf_str(&text), "]]>"));
	unit_ok(xml_each(text.data, text.len, take_text, &back));
	ck_assert_str_eq(buf_str(&back), odd);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_s3_xml");
	TCase *t = unit_case(s, "page");

	tcase_add_test(t, a_page_gives_keys_sizes_and_where_to_go_on);
	tcase_add_test(t, encoded_keys_are_decoded_wherever_the_page_says_so);
	tcase_add_test(t, hostile_pages_are_refused);
	tcase_add_test(t, a_page_has_at_most_a_thousand_objects);
	tcase_add_test(t, long_texts_and_names_are_refused);
	t = unit_case(s, "error");
	tcase_add_test(t, errors_are_told_apart_wherever_they_stand);
	t = unit_case(s, "delete");
	tcase_add_test(t, failures_of_many_are_told_one_by_one);
	tcase_add_test(t, hostile_answers_to_many_are_refused);
	tcase_add_test(t, no_more_failures_than_keys_are_believed);
	tcase_add_test(t, versions_and_markers_come_in_their_order);
	tcase_add_test(t, what_is_escaped_comes_back);
	return unit_run(s);
}
