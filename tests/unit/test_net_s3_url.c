/* SPDX-License-Identifier: Apache-2.0 */
/* Where an S3 remote is, from its URL, the environment and the files; URLs in canonical form. */
#include "lib/net/s3_url.h"

#include "tests/unit/aws_unit.h"

/* Resolves a URL; what it gives is the caller's. */
static int resolve(const char *text, struct s3_place *ret_place)
{
	struct remote_url cleanup_remote_url url = {0};
	struct aws_files cleanup_aws_files files = {0};
	cleanup_free char *path = NULL;

	unit_ok(remote_url_parse(text, &url));
	unit_ok(aws_files_read(&files, &path));
	return s3_place_resolve(&url, &files, ret_place);
}

/* The URL of the object k/1, and the region. */
static void assert_place(const char *text, const char *object, const char *region)
{
	struct s3_place cleanup_s3_place place = {0};
	struct buf cleanup_buf url = {0};

	unit_ok(resolve(text, &place));
	s3_object_url(&place, "k/1", &url);
	ck_assert_str_eq(buf_str(&url), object);
	ck_assert_str_eq(place.region, region);
}

START_TEST(a_url_alone_says_where)
{
	static const struct {
		const char *url, *object, *region;
	} cases[] = {
		{"s3://bkt", "https://bkt.s3.us-east-1.amazonaws.com/k/1", "us-east-1"},
		{"s3://bkt/", "https://bkt.s3.us-east-1.amazonaws.com/k/1", "us-east-1"},
		{"s3://bkt/a/b/", "https://bkt.s3.us-east-1.amazonaws.com/a/b/k/1", "us-east-1"},
		{"s3://bkt/a?region=eu-west-3", "https://bkt.s3.eu-west-3.amazonaws.com/a/k/1",
		 "eu-west-3"},
		{"s3://bkt/a?region=cn-north-1", "https://bkt.s3.cn-north-1.amazonaws.com.cn/a/k/1",
		 "cn-north-1"},
		{"s3://my.bkt/a", "https://s3.us-east-1.amazonaws.com/my.bkt/a/k/1", "us-east-1"},
		{"s3://bkt/a?path-style=1", "https://s3.us-east-1.amazonaws.com/bkt/a/k/1",
		 "us-east-1"},
		{"s3://bkt/a?endpoint=http://h:9000", "http://h:9000/bkt/a/k/1", "us-east-1"},
		{"s3://bkt/a?endpoint=http://h:9000/", "http://h:9000/bkt/a/k/1", "us-east-1"},
		{"s3://bkt/a?endpoint=https://h/s3/", "https://h/s3/bkt/a/k/1", "us-east-1"},
		{"s3://bkt/a?endpoint=http%3A%2F%2Fh%3A9000", "http://h:9000/bkt/a/k/1",
		 "us-east-1"},
		{"s3://bkt/a?endpoint=http://h:9000&path-style=0", "http://bkt.h:9000/a/k/1",
		 "us-east-1"},
		{"s3://bkt/a?endpoint=https://s3.us-west-2.amazonaws.com",
		 "https://bkt.s3.us-west-2.amazonaws.com/a/k/1", "us-east-1"},
		{"s3://bkt/a?endpoint=https://amazonaws.com.example.org",
		 "https://amazonaws.com.example.org/bkt/a/k/1", "us-east-1"},
		{"s3://bkt/a%20b/c+d", "https://bkt.s3.us-east-1.amazonaws.com/a%20b/c%2Bd/k/1",
		 "us-east-1"},
		{"s3://bkt/%C3%A4", "https://bkt.s3.us-east-1.amazonaws.com/%C3%A4/k/1",
		 "us-east-1"},
		{"gs://bkt/a", "https://storage.googleapis.com/bkt/a/k/1", "auto"},
		{"gs://bkt/a?endpoint=http://h:1", "http://h:1/bkt/a/k/1", "auto"},
	};

	aws_unit_environment();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_place(cases[i].url, cases[i].object, cases[i].region);
}
END_TEST

START_TEST(the_url_goes_before_the_environment_and_that_before_files)
{
	aws_unit_environment();
	aws_unit_file("config", "[default]\nregion = r-file\nendpoint_url = http://file\n"
				"[profile other]\nregion=r-other\nservices = mine\ns3 =\n"
				"  addressing_style = virtual\n"
				"[services mine]\ns3 =\n  endpoint_url = http://services\n");
	assert_place("s3://bkt/a", "http://file/bkt/a/k/1", "r-file");
	assert_place("s3://bkt/a?profile=other", "http://bkt.services/a/k/1", "r-other");
	setenv("AWS_PROFILE", "other", 1);
	assert_place("s3://bkt/a", "http://bkt.services/a/k/1", "r-other");
	setenv("AWS_ENDPOINT_URL", "http://all", 1);
	setenv("AWS_DEFAULT_REGION", "r-default", 1);
	assert_place("s3://bkt/a", "http://bkt.all/a/k/1", "r-default");
	setenv("AWS_ENDPOINT_URL_S3", "http://s3only", 1);
	setenv("AWS_REGION", "r-env", 1);
	assert_place("s3://bkt/a", "http://bkt.s3only/a/k/1", "r-env");
	assert_place("s3://bkt/a?endpoint=http://url&region=r-url&path-style=1",
		     "http://url/bkt/a/k/1", "r-url");
	assert_place("gs://bkt/a", "https://storage.googleapis.com/bkt/a/k/1", "auto");
	setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
	assert_place("s3://bkt/a", "https://bkt.s3.r-env.amazonaws.com/a/k/1", "r-env");
}
END_TEST

START_TEST(certificates_are_found_in_the_same_order)
{
	struct s3_place cleanup_s3_place none = {0}, file = {0}, env = {0}, url = {0};

	aws_unit_environment();
	unit_ok(resolve("s3://bkt", &none));
	ck_assert_ptr_null(none.ca_file);
	aws_unit_file("config", "[default]\nca_bundle = /file.pem\n");
	unit_ok(resolve("s3://bkt", &file));
	ck_assert_str_eq(file.ca_file, "/file.pem");
	setenv("AWS_CA_BUNDLE", "/env.pem", 1);
	unit_ok(resolve("s3://bkt", &env));
	ck_assert_str_eq(env.ca_file, "/env.pem");
	unit_ok(resolve("s3://bkt?ca-file=/url.pem", &url));
	ck_assert_str_eq(url.ca_file, "/url.pem");
}
END_TEST

START_TEST(bad_urls_are_refused)
{
	static const char *const bad[] = {"s3:",
					  "s3://",
					  "s3:/bkt",
					  "s3://ab",
					  "s3:///a",
					  "s3://b%20t",
					  "s3://b_t@x/a",
					  "s3://bkt:80/a",
					  "s3://bkt/a//b",
					  "s3://bkt//a",
					  "s3://bkt/../a",
					  "s3://bkt/a/.",
					  "s3://bkt/%2e%2e/a",
					  "s3://bkt/a%0ab",
					  "s3://bkt/a%00",
					  "s3://bkt/a%2",
					  "s3://bkt?region=",
					  "s3://bkt?region=a/b",
					  "s3://bkt?region=a%20b",
					  "s3://bkt?x=1",
					  "s3://bkt?path-style=yes",
					  "s3://bkt?endpoint=h:80",
					  "s3://bkt?endpoint=ftp://h",
					  "s3://bkt?endpoint=http://",
					  "s3://bkt?endpoint=http:///a",
					  "s3://bkt?endpoint=http://u:p@h",
					  "s3://bkt?endpoint=http://h?a=b",
					  "s3://bkt?endpoint=xhttp://h",
					  "gs://bkt?profile=x"};

	aws_unit_environment();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct s3_place place = {0};
		int r = resolve(bad[i], &place);

		ck_assert_msg(r == -EINVAL, "%s: %d", bad[i], r);
	}
}
END_TEST

START_TEST(a_prefix_and_key_fit_what_s3_counts)
{
	struct s3_place cleanup_s3_place place = {0}, longer = {0};
	char url[700];

	aws_unit_environment();
	memset(url, 'p', sizeof(url));
	memcpy(url, "s3://bkt/", 9);
	url[9 + 512] = '\0';
	unit_ok(resolve(url, &place));
	ck_assert_uint_eq(strlen(place.prefix), 513);
	url[9 + 512] = 'p';
	url[9 + 513] = '\0';
	unit_error(resolve(url, &longer), -EINVAL);
}
END_TEST

START_TEST(a_list_is_asked_for_with_a_sorted_and_encoded_query)
{
	struct s3_place cleanup_s3_place place = {0};
	struct buf cleanup_buf first = {0}, next = {0};

	aws_unit_environment();
	unit_ok(resolve("s3://bkt/a%20b?endpoint=http://h", &place));
	s3_list_url(&place, "packs/", NULL, &first);
	ck_assert_str_eq(buf_str(&first),
			 "http://h/bkt/?encoding-type=url&list-type=2&max-keys=1000"
			 "&prefix=a%20b%2Fpacks%2F");
	s3_list_url(&place, "", "T+/=~", &next);
	ck_assert_str_eq(buf_str(&next), "http://h/bkt/?continuation-token=T%2B%2F%3D~"
					 "&encoding-type=url&list-type=2&max-keys=1000"
					 "&prefix=a%20b%2F");
}
END_TEST

START_TEST(keys_to_delete_go_to_the_bucket)
{
	struct s3_place place = {.base = (char *)"http://h/bkt", .prefix = (char *)"a/"};
	struct buf cleanup_buf url = {0};

	s3_delete_url(&place, &url);
	ck_assert_str_eq(buf_str(&url), "http://h/bkt/?delete=");
}
END_TEST

START_TEST(encoding_leaves_only_what_rfc_3986_calls_unreserved)
{
	struct buf cleanup_buf all = {0}, path = {0};
	char text[256];

	for (int i = 1; i < 256; i++)
		text[i - 1] = (char)i;
	text[255] = '\0';
	s3_encode(&all, text, false);
	for (const char *p = buf_str(&all); *p; p++)
		ck_assert(strchr(
			"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%", *p));
	ck_assert_uint_eq(all.len, 66 + 3 * (255 - 66));
	s3_encode(&path, "/a~b/+\xff", true);
	ck_assert_str_eq(buf_str(&path), "/a~b/%2B%FF");
}
END_TEST

START_TEST(files_are_read_as_amazon_writes_them)
{
	struct aws_files cleanup_aws_files f = {0};
	static const char credentials[] =
		"# comment\n; another\nlost = 1\n[default]\n"
		"aws_access_key_id=K1\r\n aws_secret_access_key = a=b/#c \n"
		"empty =\n[ two words ]\naws_access_key_id = K2\nno equals\n"
		"[unclosed\naws_access_key_id = K3\n[last]\nx = y";
	static const char config[] =
		"[default]\nregion = r1\n[profile   p]\nregion = r2\n[p2]\n"
		"region = r3\n[services s]\nsts =\n  endpoint_url = e\n"
		"s3 =\n  endpoint_url = f\nregion = r4\n[profile]\nregion = r5\n";

	unit_ok(aws_files_parse(&f, credentials, strlen(credentials), false));
	unit_ok(aws_files_parse(&f, config, strlen(config), true));
	ck_assert_str_eq(aws_files_get(&f, "default", "aws_access_key_id"), "K1");
	ck_assert_str_eq(aws_files_get(&f, "default", "aws_secret_access_key"), "a=b/#c");
	ck_assert_ptr_null(aws_files_get(&f, "default", "empty"));
	ck_assert_str_eq(aws_files_get(&f, "two words", "aws_access_key_id"), "K2");
	ck_assert_str_eq(aws_files_get(&f, "last", "x"), "y");
	ck_assert_str_eq(aws_files_get(&f, "default", "region"), "r1");
	ck_assert_str_eq(aws_files_get(&f, "p", "region"), "r2");
	ck_assert_ptr_null(aws_files_get(&f, "p2", "region"));
	ck_assert_str_eq(aws_files_get(&f, "services s", "sts.endpoint_url"), "e");
	ck_assert_str_eq(aws_files_get(&f, "services s", "s3.endpoint_url"), "f");
	ck_assert_str_eq(aws_files_get(&f, "services s", "region"), "r4");
	for (size_t i = 0; i < f.count; i++)
		ck_assert(strcmp(f.settings[i].value, "K3") && strcmp(f.settings[i].value, "r5"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_s3_url");
	TCase *t = unit_case(s, "place");

	tcase_add_test(t, a_url_alone_says_where);
	tcase_add_test(t, the_url_goes_before_the_environment_and_that_before_files);
	tcase_add_test(t, certificates_are_found_in_the_same_order);
	tcase_add_test(t, bad_urls_are_refused);
	tcase_add_test(t, a_prefix_and_key_fit_what_s3_counts);
	t = unit_case(s, "requests");
	tcase_add_test(t, a_list_is_asked_for_with_a_sorted_and_encoded_query);
	tcase_add_test(t, keys_to_delete_go_to_the_bucket);
	tcase_add_test(t, encoding_leaves_only_what_rfc_3986_calls_unreserved);
	t = unit_case(s, "files");
	tcase_add_test(t, files_are_read_as_amazon_writes_them);
	return unit_run(s);
}
