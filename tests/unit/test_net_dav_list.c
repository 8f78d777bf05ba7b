/* SPDX-License-Identifier: Apache-2.0 */
/* What WebDAV servers list: as the known ones write it, and as an attacker would. */
#include "lib/net/dav.h"

#include "lib/util/buf.h"
#include "tests/unit/unit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct seen {
	struct dav_entry entries[8];
	size_t count;
	size_t stop_at;
};

static int see(void *arg, const struct dav_entry *entry)
{
	struct seen *s = arg;

	ck_assert_uint_lt(s->count, COUNT(s->entries));
	s->entries[s->count++] = *entry;
	return s->count == s->stop_at ? 77 : 0;
}

static int parse(const char *text, struct seen *s)
{
	*s = (struct seen){.stop_at = s->stop_at};
	return dav_list_parse(text, strlen(text), see, s);
}

static void assert_entry(const struct dav_entry *e, const char *href, bool collection,
			 uint64_t size)
{
	ck_assert_str_eq(e->href, href);
	ck_assert_int_eq(e->collection, collection);
	ck_assert_uint_eq(e->size, size);
}

START_TEST(what_servers_write_is_understood)
{
	static const char apache[] =
		"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n"
		"<D:multistatus xmlns:D=\"DAV:\" xmlns:ns0=\"DAV:\">\n"
		"<D:response xmlns:lp1=\"DAV:\" xmlns:lp2=\"http://apache.org/dav/props/\">\n"
		"<D:href>/p/</D:href><D:propstat><D:prop>\n"
		"<lp1:resourcetype><D:collection/></lp1:resourcetype>\n"
		"<lp1:getlastmodified>Sun, 22 Nov 2026 03:18:21 GMT</lp1:getlastmodified>\n"
		"</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>\n"
		"<D:propstat><D:prop><lp1:getcontentlength/></D:prop>\n"
		"<D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>\n"
		"<D:response xmlns:lp1=\"DAV:\"><D:href> /p/f </D:href><D:propstat><D:prop>\n"
		"<lp1:resourcetype/><lp1:getcontentlength> 10 </lp1:getcontentlength></D:prop>\n"
		"<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\n"
		"</D:multistatus>\n";
	static const char nextcloud[] =
		"<d:multistatus xmlns:d=\"DAV:\" xmlns:oc=\"http://owncloud.org/ns\">"
		"<d:response><d:href>/dav/a%20b</d:href><d:propstat><d:prop>"
		"<d:getcontentlength>5</d:getcontentlength><oc:getcontentlength>6"
		"</oc:getcontentlength></d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat>"
		"</d:response></d:multistatus>";
	struct seen s = {0};

	unit_ok(parse(apache, &s));
	ck_assert_uint_eq(s.count, 2);
	assert_entry(&s.entries[0], "/p/", true, DAV_NO_SIZE);
	ck_assert_str_eq(s.entries[0].modified, "Sun, 22 Nov 2026 03:18:21 GMT");
	assert_entry(&s.entries[1], "/p/f", false, 10);
	ck_assert_str_eq(s.entries[1].modified, "");
	unit_ok(parse(nextcloud, &s));
	ck_assert_uint_eq(s.count, 1);
	assert_entry(&s.entries[0], "/dav/a%20b", false, 5);
}
END_TEST

#define RESPONSE(inner)                                                                            \
	"<m:multistatus xmlns:m=\"DAV:\"><m:response>" inner "</m:response></m:multistatus>"
#define STAT(prop)                                                                                 \
	"<m:propstat><m:prop>" prop "</m:prop><m:status>HTTP/1.1 200 OK</m:status></m:propstat>"

START_TEST(what_does_not_count_is_left_out)
{
	static const char *const none[] = {
		"<m:multistatus xmlns:m=\"DAV:\"/>",
		RESPONSE(""),
		RESPONSE("<m:href/>"),
		RESPONSE("<m:href>/a</m:href><m:status>HTTP/1.1 404 Not Found</m:status>"),
		RESPONSE("<m:href>/a</m:href><m:status>nonsense</m:status>"),
		RESPONSE("<x><m:href>/a</m:href></x>"),
		("<m:multistatus xmlns:m=\"DAV:\"><x><m:response><m:href>/a</m:href></m:response></x>"
		 "</m:multistatus>"),
	};
	static const char *const no_size[] = {
		RESPONSE("<m:href>/a</m:href>"),
		RESPONSE("<m:href>/a</m:href>" STAT("<m:getcontentlength>-1</m:getcontentlength>")),
		RESPONSE("<m:href>/a</m:href>" STAT(
			"<m:getcontentlength>0x10</m:getcontentlength>")),
		RESPONSE("<m:href>/a</m:href>" STAT(
			"<m:getcontentlength>99999999999999999999</m:getcontentlength>")),
		RESPONSE("<m:href>/a</m:href><m:propstat><m:prop><m:getcontentlength>7"
			 "</m:getcontentlength><m:resourcetype><m:collection/></m:resourcetype>"
			 "</m:prop><m:status>HTTP/1.1 403 No</m:status></m:propstat>"),
		RESPONSE("<m:href>/a</m:href><m:getcontentlength>7</m:getcontentlength>"),
	};
	struct seen s = {0};

	for (size_t i = 0; i < COUNT(none); i++) {
		unit_ok(parse(none[i], &s));
		ck_assert_msg(s.count == 0, "%s", none[i]);
	}
	for (size_t i = 0; i < COUNT(no_size); i++) {
		unit_ok(parse(no_size[i], &s));
		ck_assert_uint_eq(s.count, 1);
		assert_entry(&s.entries[0], "/a", false, DAV_NO_SIZE);
	}
}
END_TEST

START_TEST(what_is_no_listing_is_refused)
{
	static const char *const bad[] = {
		"",
		" ",
		"<html><body>index</body></html>",
		"<multistatus/>",
		"<m:multistatus xmlns:m=\"other\"/>",
		"<m:multistatus xmlns:m=\"DAV:\">",
		"<m:multistatus xmlns:m=\"DAV:\"></m:response>",
		"<m:multistatus xmlns:m=\"DAV:\"/><m:multistatus xmlns:m=\"DAV:\"/>",
		"<!DOCTYPE m><m:multistatus xmlns:m=\"DAV:\"/>",
		"<!DOCTYPE m [<!ENTITY a \"aaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>"
		"<m:multistatus xmlns:m=\"DAV:\"><m:response><m:href>&b;</m:href></m:response>"
		"</m:multistatus>",
		"<!DOCTYPE m SYSTEM \"file:///etc/passwd\"><m:multistatus xmlns:m=\"DAV:\"/>",
		RESPONSE("<m:href>&undefined;</m:href>"),
		RESPONSE("<m:href>/a\x01</m:href>"),
		RESPONSE("<m:href>\xff\xfe</m:href>"),
	};
	struct buf cleanup_buf deep = {0};
	struct seen s = {0};

	for (size_t i = 0; i < COUNT(bad); i++)
		unit_error(parse(bad[i], &s), -EBADMSG);
	buf_printf(&deep, "<m:multistatus xmlns:m=\"DAV:\">");
	for (int i = 0; i < 100000; i++)
		buf_printf(&deep, "<x>");
	unit_error(parse(buf_str(&deep), &s), -EBADMSG);
}
END_TEST

START_TEST(long_texts_are_bounded)
{
	struct buf cleanup_buf text = {0};
	struct seen s = {0};

	buf_printf(&text, "<m:multistatus xmlns:m=\"DAV:\">");
	for (int len = DAV_HREF_MAX - 2; len <= DAV_HREF_MAX; len++)
		buf_printf(&text, "<m:response><m:href>/%0*d</m:href>%s</m:response>", len, 0,
			   STAT("<m:getlastmodified>a date that is longer than any date that a "
				"server has ever been seen to write</m:getlastmodified>"));
	buf_printf(&text, "</m:multistatus>");
	unit_ok(parse(buf_str(&text), &s));
	ck_assert_uint_eq(s.count, 1);
	ck_assert_uint_eq(strlen(s.entries[0].href), DAV_HREF_MAX - 1);
	ck_assert_str_eq(s.entries[0].modified, "");
}
END_TEST

START_TEST(the_callback_ends_it)
{
	struct seen s = {.stop_at = 1};

	unit_error(
		parse("<m:multistatus xmlns:m=\"DAV:\"><m:response><m:href>/a</m:href></m:response>"
		      "<m:response><m:href>/b</m:href></m:response></m:multistatus>",
		      &s),
		77);
	ck_assert_uint_eq(s.count, 1);
}
END_TEST

START_TEST(only_members_of_the_collection_have_a_name)
{
	static const struct dav_place place = {.authority = "h:80", .path = "/a b/c/"};
	static const struct {
		const char *href, *name;
	} good[] = {
		{"/a%20b/c/x", "x"},	       {"/a b/c/x", "x"},
		{"/a%20b/c/x/", "x"},	       {"http://h:80/a%20b/c/x", "x"},
		{"https://H:80/a b/c/x", "x"}, {"/%61%20b/%63/%78", "x"},
		{"/a b/c/..", ".."}, /* no key, so remote_key_valid leaves it out */
		{"/a b/c/.tmp-1", ".tmp-1"},
	};
	static const char *const bad[] = {
		"",
		"x",
		"/",
		"/a%20b/c/",
		"/a%20b/c",
		"/a%20b/cc/x",
		"/other/x",
		"/a%20b/c/x/y",
		"/a%20b/c//",
		"/a%20b/c/x%2fy",
		"/a%20b/c/..%2F..",
		"/a%20b/c/x%00",
		"/a%20b/c/%zz",
		"/a%20b/c/x?y",
		"/a%20b/c/x#y",
		"//h:80/a%20b/c/x",
		"http://h/a%20b/c/x",
		"http://evil/a%20b/c/x",
		"http://h:80",
		"ftp://h:80/a%20b/c/x",
		"/a%20b/c/../../etc/x",
	};
	char name[DAV_HREF_MAX];

	for (size_t i = 0; i < COUNT(good); i++) {
		unit_ok(dav_member_name(&place, good[i].href, name));
		ck_assert_str_eq(name, good[i].name);
	}
	for (size_t i = 0; i < COUNT(bad); i++)
		ck_assert_msg(dav_member_name(&place, bad[i], name) == -ENOENT, "%s", bad[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_dav_list");
	TCase *t = unit_case(s, "list");

	tcase_add_test(t, what_servers_write_is_understood);
	tcase_add_test(t, what_does_not_count_is_left_out);
	tcase_add_test(t, what_is_no_listing_is_refused);
	tcase_add_test(t, long_texts_are_bounded);
	tcase_add_test(t, the_callback_ends_it);
	tcase_add_test(t, only_members_of_the_collection_have_a_name);
	return unit_run(s);
}
